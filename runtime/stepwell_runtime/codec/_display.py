"""Stored values for people: JSON-able, nothing imported, never an error."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from types import NoneType
from typing import Any, Final

import msgspec

from stepwell_runtime.codec import _tags as tags
from stepwell_runtime.codec._exceptions import describe_stored, read_inner
from stepwell_runtime.codec._read import pairs
from stepwell_runtime.codec._refs import type_of

_JSON: Final = (NoneType, bool, int, str)
_LONG_INT: Final = 10_000  # bits; str() refuses a little more

_Shower = Callable[[memoryview], Any]


def show(data: bytes) -> object:
    """Any stored value as None, bool, int, float, str, list and dict with str keys."""
    try:
        return _plain(_decode(data))
    except Exception as error:  # noqa: BLE001 - whatever is stored, the row must be listed
        start = base64.b64encode(data[:48]).decode()
        return f"<cannot be read: {type(error).__name__}, {len(data):,} bytes, base64 {start}>"


def _plain(value: Any) -> Any:
    kind = type_of(value)
    if kind is float:
        if math.isnan(value):
            return "NaN"
        return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
    if kind is bytes:
        return _bytes(value)
    if kind is list:
        return [_plain(item) for item in value]
    if kind is dict:
        return {_key(key): _plain(item) for key, item in value.items()}
    if kind is int and not _fits_json(value):
        return str(value) if value.bit_length() < _LONG_INT else f"<{value.bit_length():,} bits>"
    return value if kind in _JSON else str(value)


def _fits_json(value: int) -> bool:
    return -(2**63) <= value < 2**64


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    kind = type_of(key)
    plain = _plain(list(key) if kind is tuple else key)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def _bytes(data: bytes | memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()


def _hook(code: int, data: memoryview) -> Any:
    shower = _showers.get(code)
    if shower is None:
        return f"<unknown kind of value {code}>"
    return shower(data)


_decode: Callable[[bytes | memoryview], Any] = msgspec.msgpack.Decoder(ext_hook=_hook).decode


def _text(data: memoryview) -> str:
    return str(data, "utf-8", "surrogatepass").encode("utf-8", "backslashreplace").decode()


def _mapping(flat: list[Any]) -> dict[str, Any]:
    return {_key(key): value for key, value in pairs(flat)}


def _object(data: memoryview) -> Any:
    decoded: list[Any] = _decode(data)
    fields: dict[str, Any] = decoded[1]
    return {**fields, **decoded[2].get("extra", {})} if len(decoded) > 2 else fields


def _enum(data: memoryview) -> Any:
    _, member = _decode(data)
    return member["name"] if member["value"] is None else member["value"]


def _complex(data: memoryview) -> str:
    import struct

    return str(complex(*struct.unpack("<dd", data)))


def _uuid(data: memoryview) -> str:
    import uuid

    return str(uuid.UUID(bytes=bytes(data)))


def _timedelta(data: memoryview) -> str:
    import datetime as dt

    return str(dt.timedelta(*_decode(data)))


def _zone(zone: Any) -> str:
    import datetime as dt

    if isinstance(zone, str):
        return zone
    *ticks, name = zone
    return str(name or dt.timezone(dt.timedelta(*ticks)))


def _moment(data: memoryview) -> str:
    text, *rest = _decode(data)
    zone = rest[1] if rest else None
    return f"{text} {_zone(zone)}" if zone is not None else str(text)


def _error(data: memoryview) -> Any:
    info = describe_stored(read_inner(data))
    return {
        "error": f"{info.module}.{info.type}".removeprefix("builtins."),
        "message": info.message,
    }


_showers: Final[dict[int, _Shower]] = {
    **dict.fromkeys((tags.TUPLE, tags.SET, tags.FROZENSET), lambda data: _decode(data)),
    **dict.fromkeys(
        (tags.MAP, tags.COUNTER, tags.ORDEREDDICT), lambda data: _mapping(_decode(data))
    ),
    **dict.fromkeys((tags.STR, tags.DECIMAL, tags.DATE, tags.SINGLETON), _text),
    **dict.fromkeys((tags.DATETIME, tags.TIME), _moment),
    tags.BIGINT: lambda data: int.from_bytes(data, "little", signed=True),
    tags.BYTEARRAY: _bytes,
    tags.COMPLEX: _complex,
    tags.FRACTION: lambda data: "/".join(map(str, _decode(data))),
    tags.UUID: _uuid,
    tags.TIMEDELTA: _timedelta,
    tags.TZINFO: lambda data: _zone(_decode(data)),
    tags.PATH: lambda data: _decode(data)[1],
    tags.DEQUE: lambda data: _decode(data)[1],
    tags.RANGE: lambda data: f"range({', '.join(map(str, _decode(data)))})",
    tags.DEFAULTDICT: lambda data: _mapping(_decode(data)[1]),
    tags.OBJECT: _object,
    tags.ENUM: _enum,
    tags.TEXT: lambda data: _decode(data)[2],
    tags.ERROR: _error,
}
