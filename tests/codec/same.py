"""What a value is made of: equal anatomies are equal values of equal types all through."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import struct
import zoneinfo
from typing import Any

import msgspec
import pydantic

from stepwell_runtime.codec._refs import type_of

_NOT_DATA = frozenset({"lazy", "__orig_class__"})


def anatomy(value: Any) -> Any:
    return type(value), _inside(value)


def _inside(value: Any) -> Any:
    kind = type_of(value)
    if isinstance(value, enum.Enum):
        return value.name, id(value) if value.name in type(value).__members__ else value.value
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, complex):
        return struct.pack("<dd", value.real, value.imag)
    if isinstance(value, decimal.Decimal):
        return value.as_tuple()
    if isinstance(value, dt.datetime | dt.time):
        return value.replace(tzinfo=None).isoformat(), value.fold, _zone(value.tzinfo)
    if isinstance(value, dt.tzinfo):
        return _zone(value)
    if issubclass(kind, dict):
        factory = getattr(value, "default_factory", None)
        return factory, [(anatomy(key), anatomy(item)) for key, item in value.items()]
    if issubclass(kind, set | frozenset):
        return sorted(repr(anatomy(item)) for item in value)
    if isinstance(value, pydantic.BaseModel):
        return _model(value)
    if dataclasses.is_dataclass(value) or isinstance(value, msgspec.Struct):
        return _fields(value), _attributes(value)
    if issubclass(kind, list | tuple | collections.deque):
        maxlen = getattr(value, "maxlen", None)
        return maxlen, [anatomy(item) for item in value], _attributes(value)
    return repr(value), value


def _zone(zone: dt.tzinfo | None) -> Any:
    return id(zone) if isinstance(zone, zoneinfo.ZoneInfo) else repr(zone)


def _model(value: pydantic.BaseModel) -> Any:
    private: dict[str, Any] | None = value.__pydantic_private__
    return (
        anatomy({name: getattr(value, name) for name in type(value).model_fields}),
        anatomy(value.__pydantic_extra__),
        anatomy(private),
        value.__pydantic_fields_set__,
    )


def _fields(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
    else:
        names = tuple(field.name for field in dataclasses.fields(value))
    return [(name, anatomy(getattr(value, name))) for name in names if hasattr(value, name)]


def _attributes(value: Any) -> Any:
    own: dict[str, Any] = getattr(value, "__dict__", {})
    return sorted(
        (name, repr(anatomy(item))) for name, item in own.items() if name not in _NOT_DATA
    )
