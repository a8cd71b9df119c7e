"""Which code a run was started with: a name for people, which nothing depends on."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable
from types import CodeType
from typing import Any, Final, cast

_BYTES: Final = 4


def fingerprint(fn: Any) -> str:
    """Return a few characters that are others when the compiled code of a function is another.

    Comments, and where it stands, make no difference; what it calls makes none either. They are
    the same in each process of one version of Python.
    """
    code = getattr(inspect.unwrap(fn), "__code__", None)
    digest = hashlib.blake2b(digest_size=_BYTES)
    digest.update(_described(code).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _described(constant: object) -> str:
    if isinstance(constant, CodeType):
        parts = [constant.co_code.hex(), *map(_described, constant.co_consts)]
        names = (constant.co_names, constant.co_varnames, constant.co_freevars)
        return f"code({parts}, {names})"
    if isinstance(constant, frozenset | tuple):
        inner = [_described(one) for one in cast("Iterable[object]", constant)]
        if isinstance(constant, frozenset):
            return f"set({sorted(inner)})"  # its order is another in each process
        return f"tuple({inner})"
    return f"{type(constant).__name__} {constant!r}"
