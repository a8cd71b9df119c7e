"""Why a type cannot be stored, and what to do instead."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

_REMEDIES: Final[tuple[tuple[str, str], ...]] = (
    ("memoryview", "a view of somebody else's memory cannot be stored: pass bytes(view)"),
    ("generator", "a generator cannot be stored: pass a list of its values"),
    ("async_generator", "an async generator cannot be stored: pass a list of its values"),
    ("coroutine", "this is a coroutine that nobody awaited: await it and pass the result"),
    ("function", "a function cannot be stored: pass its name, or the data it would work on"),
    ("method", "a bound method cannot be stored: pass the object, if it is plain data"),
    ("type", "a class cannot be stored: pass its name"),
    ("module", "a module cannot be stored: pass its name"),
    ("SecretStr", "a secret would be stored in plain text: pass where to find it"),
    ("SecretBytes", "a secret would be stored in plain text: pass where to find it"),
)


def why_not(kind: type, storable: Container[type]) -> str:
    for name, remedy in _REMEDIES:
        if kind.__name__ == name and kind.__module__ in ("builtins", "pydantic.types"):
            return remedy
    if issubclass(kind, BaseException):
        return "an exception is not a value: raise it, or pass its type name and message"
    for base in kind.__mro__[1:]:
        if base in storable:
            name = base.__name__
            return (
                f"a subclass of {name} would come back as {name}: convert it to a plain {name}, "
                "or use a dataclass"
            )
    return (
        "this type cannot be stored: open files, locks and connections belong inside the step; for "
        "data use plain values, a dataclass, a pydantic model or a msgspec Struct"
    )
