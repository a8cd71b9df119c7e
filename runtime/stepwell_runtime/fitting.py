"""Whether a value fits an annotation, where that can be told without building anything."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict


def refuse_unfit(value: object, annotation: Any, where: str) -> None:
    """Raise TypeError when `value` certainly does not fit; what cannot be told passes."""
    if not fits(value, annotation):
        shown = getattr(annotation, "__qualname__", None) or annotation
        raise TypeError(f"{where} takes {shown}, not {value!r} ({type(value).__name__})")


def fits(value: Any, annotation: Any) -> bool:
    if type(value) is annotation:
        return True
    if annotation is None:
        return value is None
    origin = get_origin(annotation)
    if origin is None:
        return fits_plain(value, annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        return fits(value, arguments[0])
    if origin is Union or origin is types.UnionType:
        return any(fits(value, one) for one in arguments)
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in arguments)
    return not isinstance(origin, type) or fits_generic(value, origin, arguments)


def fits_plain(value: Any, annotation: Any) -> bool:
    if annotation is Any:  # a class since 3.11, but no isinstance() takes it
        return True
    if is_typeddict(annotation):
        return isinstance(value, dict)
    if not isinstance(annotation, type) or getattr(annotation, "_is_protocol", False):
        return True
    if annotation is float:
        return isinstance(value, (float, int)) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, annotation)


def fits_generic(value: Any, origin: Any, arguments: tuple[Any, ...]) -> bool:
    if getattr(origin, "_is_protocol", False):
        return True
    if not isinstance(value, origin):
        return False
    if issubclass(origin, tuple):
        if len(arguments) == 2 and arguments[1] is ...:
            return all(fits(item, arguments[0]) for item in value)
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    if issubclass(origin, Mapping) and len(arguments) == 2:
        return all(fits(k, arguments[0]) and fits(v, arguments[1]) for k, v in value.items())
    if issubclass(origin, (list, set, frozenset)) and len(arguments) == 1:
        return all(fits(item, arguments[0]) for item in value)
    return True
