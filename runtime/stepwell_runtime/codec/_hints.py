"""Which classes an annotation reaches."""

from __future__ import annotations

import dataclasses
import re
import sys
import typing
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from stepwell_runtime.codec._refs import find_loaded


def reachable(annotation: object) -> dict[str, type]:
    """Classes named by the annotation, and by the fields of those, by `module:qualname`."""
    found: dict[str, type] = {}
    todo: list[object] = [annotation]
    while todo:
        hint = todo.pop()
        if not isinstance(hint, type) or typing.get_origin(hint) is not None:
            todo.extend(_parts(hint))
            continue
        ref = f"{hint.__module__}:{hint.__qualname__}"
        if ref not in found:
            found[ref] = hint
            todo.extend(_field_hints(hint))
    return found


def find_subclass(ref: str, bases: Iterable[type]) -> type | None:
    """A class in a module that is loaded already, if it derives from one of `bases`."""
    cls = find_loaded(ref)
    if cls is None:
        return None
    own = tuple(base for base in bases if not _is_general(base))
    return cls if issubclass(cls, own) else None


def _is_general(base: type) -> bool:
    """`object`, `Enum`, `BaseModel`, ...: derived from by all kinds of classes."""
    package = base.__module__.partition(".")[0]
    return package in ("pydantic", "msgspec") or package in sys.stdlib_module_names


def _parts(hint: object) -> Iterator[object]:
    yield from typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is not None:
        yield origin
    alias = getattr(hint, "__value__", None)  # `type X = ...` of 3.12
    if alias is not None:
        yield alias
    for bound in (getattr(hint, "__bound__", None), getattr(hint, "__supertype__", None)):
        if bound is not None:
            yield bound


def _field_hints(cls: type) -> Iterator[object]:
    if not _has_fields(cls):
        return
    try:
        hints = typing.get_type_hints(cls)
    except Exception:  # noqa: BLE001 - forward references to what is not there reach nothing
        hints = {}
    yield from hints.values()
    fields: dict[str, Any] = getattr(cls, "__pydantic_fields__", {})
    for field in fields.values():
        yield field.annotation


def _has_fields(cls: type[Any]) -> bool:
    return (
        dataclasses.is_dataclass(cls)
        or issubclass(cls, msgspec.Struct)
        or hasattr(cls, "__pydantic_fields__")
        or hasattr(cls, "_fields")
        or typing.is_typeddict(cls)
    )


def spell(hint: object) -> str:
    """The annotation as text that is the same in every process: no addresses, no metadata."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return spell(args[0])
    if origin in _UNIONS:
        return " | ".join(spell(arg) for arg in args)
    if origin is not None and origin is not typing.Literal:
        return f"{spell(origin)}[{', '.join(spell(arg) for arg in args)}]"
    if isinstance(hint, type):
        return f"{hint.__module__}.{hint.__qualname__}"
    return _ADDRESS.sub("", repr(hint))


def sole_class(annotation: object) -> type | None:
    """`C` for `C` and `C | None`: the class that a renamed one must be."""
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation
    rest = [part for part in typing.get_args(annotation) if part is not type(None)]
    is_union = typing.get_origin(annotation) in _UNIONS
    return sole_class(rest[0]) if is_union and len(rest) == 1 else None


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_UNIONS = (typing.Union, type(int | None))
