"""Data from outside (CLI, HTTP) made to fit an annotation."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from stepwell_runtime.codec._hints import reachable
from stepwell_runtime.codec.errors import SerializationError


def convert(value: object, annotation: object, where: str) -> Any:
    if annotation is Any:
        return value
    structs = any(issubclass(cls, msgspec.Struct) for cls in reachable(annotation).values())
    return (_by_msgspec if structs else _by_pydantic)(value, annotation, where)


def _by_msgspec(value: object, annotation: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, annotation, strict=False)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at ")
        place = path.strip("`").removeprefix("$")
        raise SerializationError(where, place, type(value).__name__, reason) from error


def _by_pydantic(value: object, annotation: Any, where: str) -> Any:
    from pydantic import ValidationError

    try:
        return _adapter(annotation).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path = "".join(f"[{part!r}]" for part in first["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        kind = type(first["input"]).__name__
        raise SerializationError(where, path, kind, first["msg"] + more) from error


@lru_cache(maxsize=256)
def _adapter(annotation: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(annotation)
