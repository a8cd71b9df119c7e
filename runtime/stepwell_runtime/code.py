"""Which code a run was started with: a name for people, which nothing depends on."""

from __future__ import annotations

import hashlib
import inspect
from types import CodeType
from typing import Any, Final

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
    if isinstance(constant, frozenset):  # its order is another in each process
        return f"set({sorted(map(_described, constant))})"
    if isinstance(constant, tuple):
        return f"tuple({[_described(one) for one in constant]})"
    return f"{type(constant).__name__} {constant!r}"
