"""Data from outside (CLI, HTTP) made to fit an annotation."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from stepwell_runtime.codec._hints import reachable
from stepwell_runtime.codec.errors import SerializationError

_GOT = re.compile("got `([^`]+)`")


def convert(value: object, annotation: object, where: str) -> Any:
    if annotation is Any:
        return value
    if any(issubclass(cls, msgspec.Struct) for cls in reachable(annotation).values()):
        return _by_msgspec(value, annotation, where)
    return _by_pydantic(value, annotation, where)


def _by_msgspec(value: object, annotation: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, annotation, strict=False)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at ")
        got = _GOT.search(reason)
        kind = got[1] if got else type(value).__name__
        place = path.strip("`").removeprefix("$")
        raise SerializationError(where, place, kind, reason) from error
    except TypeError as error:  # msgspec knows no such type
        raise _unknown_type(value, annotation, where) from error


def _unknown_type(value: object, annotation: object, where: str) -> SerializationError:
    return SerializationError(
        where,
        "",
        type(value).__name__,
        f"nothing from outside can be made to fit {annotation!r}: annotate it with plain types, a "
        "dataclass, a pydantic model or a msgspec Struct",
    )


def _by_pydantic(value: object, annotation: Any, where: str) -> Any:
    from pydantic import PydanticUserError, ValidationError

    try:
        return _adapter(annotation).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path = "".join(f"[{part!r}]" for part in first["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        kind = type(first["input"]).__name__
        raise SerializationError(where, path, kind, first["msg"] + more) from error
    except (PydanticUserError, NameError):  # such as typing.TypedDict before Python 3.12
        return _by_msgspec(value, annotation, where)


@lru_cache(maxsize=256)
def _cached_adapter(annotation: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(annotation)


def _adapter(annotation: Any) -> Any:
    try:
        return _cached_adapter(annotation)
    except TypeError:  # Annotated[..., unhashable]
        return _cached_adapter.__wrapped__(annotation)
