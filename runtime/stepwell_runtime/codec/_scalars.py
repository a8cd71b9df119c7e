"""Numbers, identifiers, dates, paths and containers of the standard library."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import fractions
import pathlib
import struct
import uuid
import zoneinfo
from typing import Any, Final

import msgspec

from stepwell_runtime.codec import _tags as tags
from stepwell_runtime.codec._read import Reader, pairs, raisers
from stepwell_runtime.codec._refs import type_name
from stepwell_runtime.codec._write import Ext, Writer, handlers
from stepwell_runtime.codec.errors import Refused, Unreadable

# Only these: a factory read from stored data is called later, so it must not be just anything.
_FACTORIES: Final[dict[str, type]] = {
    kind.__name__: kind
    for kind in (list, dict, set, int, str, float, tuple, bool, bytes, frozenset, complex)
}
_PATHS: Final[dict[str, type[pathlib.PurePath]]] = {
    kind.__name__: kind
    for kind in (
        pathlib.PurePosixPath,
        pathlib.PureWindowsPath,
        pathlib.PosixPath,
        pathlib.WindowsPath,
    )
}
_SINGLETONS: Final[dict[str, object]] = {"...": ..., "msgspec.UNSET": msgspec.UNSET}


def _lower_tuple(writer: Writer, value: tuple[Any, ...], depth: int) -> object:
    return writer.ext(tags.TUPLE, writer.items(value, depth))


def _lower_set(writer: Writer, value: set[Any] | frozenset[Any], depth: int) -> object:
    lowered = writer.items(value, depth, unordered=True)
    if writer.canonical:
        lowered.sort(key=writer.encode)
    return writer.ext(tags.SET if type(value) is set else tags.FROZENSET, lowered)


def _lower_deque(writer: Writer, value: collections.deque[Any], depth: int) -> object:
    items = writer.items(value, depth)
    return writer.ext(tags.DEQUE, [value.maxlen, items])


def _refuse_attributes(value: dict[Any, Any]) -> None:
    if value.__dict__.keys() - {"__orig_class__"}:  # which Counter[str]() sets
        raise Refused(
            type_name(type(value)),
            f"its attributes {sorted(value.__dict__)} would be lost: use a dataclass",
        )


def _lower_counter(writer: Writer, value: collections.Counter[Any], depth: int) -> object:
    _refuse_attributes(value)
    return writer.ext(tags.COUNTER, writer.pairs(value, depth))


def _lower_ordered(writer: Writer, value: collections.OrderedDict[Any, Any], depth: int) -> object:
    _refuse_attributes(value)
    return writer.ext(tags.ORDEREDDICT, writer.pairs(value, depth, ordered=True))


def _lower_defaultdict(
    writer: Writer, value: collections.defaultdict[Any, Any], depth: int
) -> object:
    factory = value.default_factory
    name = getattr(factory, "__name__", "") if factory is not None else None
    if name is not None and _FACTORIES.get(name) is not factory:
        raise Refused(
            "collections.defaultdict",
            f"only the factories {', '.join(_FACTORIES)} can be stored, not {factory!r}: pass "
            "dict(value)",
        )
    return writer.ext(tags.DEFAULTDICT, [name, writer.pairs(value, depth)])


def _lower_bytearray(writer: Writer, value: bytearray, depth: int) -> object:
    return Ext(tags.BYTEARRAY, bytes(value))


def _lower_complex(writer: Writer, value: complex, depth: int) -> object:
    return Ext(tags.COMPLEX, struct.pack("<dd", value.real, value.imag))


def _lower_decimal(writer: Writer, value: decimal.Decimal, depth: int) -> object:
    return Ext(tags.DECIMAL, str(value).encode())


def _lower_fraction(writer: Writer, value: fractions.Fraction, depth: int) -> object:
    parts = [writer.lower(value.numerator, depth), writer.lower(value.denominator, depth)]
    return writer.ext(tags.FRACTION, parts)


def _lower_uuid(writer: Writer, value: uuid.UUID, depth: int) -> object:
    return Ext(tags.UUID, value.bytes)


def _lower_range(writer: Writer, value: range, depth: int) -> object:
    ends = (value.start, value.stop, value.step)
    return writer.ext(tags.RANGE, [writer.lower(end, depth) for end in ends])


def _lower_path(writer: Writer, value: pathlib.PurePath, depth: int) -> object:
    return writer.ext(tags.PATH, [type(value).__name__, writer.lower(str(value), depth)])


def _zone(tz: dt.tzinfo | None) -> object:
    if tz is None:
        return None
    if type(tz) is dt.timezone:
        offset = tz.utcoffset(None)
        name = tz.tzname(None)
        named = name != dt.timezone(offset).tzname(None)
        return [*_ticks(offset), name if named else None]
    if type(tz) is zoneinfo.ZoneInfo:
        key: Any = tz.key  # None when it was made from a file
        if key is not None and zoneinfo.ZoneInfo(key) is tz:
            return key
        raise Refused(
            "zoneinfo.ZoneInfo",
            "a zone that ZoneInfo(key) does not return (from a file, no_cache) cannot be found "
            "again: use ZoneInfo(key)",
        )
    raise Refused(
        type_name(type(tz)), "an own tzinfo class cannot be stored: use ZoneInfo or timezone"
    )


def _ticks(delta: dt.timedelta) -> list[int]:
    return [delta.days, delta.seconds, delta.microseconds]


def _lower_moment(writer: Writer, value: dt.datetime | dt.time, depth: int) -> object:
    code = tags.DATETIME if type(value) is dt.datetime else tags.TIME
    text = value.replace(tzinfo=None, fold=0).isoformat()
    if value.tzinfo is None and not value.fold:
        return writer.ext(code, [text])
    return writer.ext(code, [text, value.fold, _zone(value.tzinfo)])


def _lower_date(writer: Writer, value: dt.date, depth: int) -> object:
    return Ext(tags.DATE, value.isoformat().encode())


def _lower_timedelta(writer: Writer, value: dt.timedelta, depth: int) -> object:
    return writer.ext(tags.TIMEDELTA, _ticks(value))


def _lower_zone(writer: Writer, value: dt.tzinfo, depth: int) -> object:
    return writer.ext(tags.TZINFO, _zone(value))


def _lower_singleton(writer: Writer, value: object, depth: int) -> object:
    for name, singleton in _SINGLETONS.items():
        if singleton is value:
            return Ext(tags.SINGLETON, name.encode())
    raise Refused(type_name(type(value)), "this value cannot be stored")


def _raise_zone(zone: Any) -> dt.tzinfo | None:
    if zone is None:
        return None
    if isinstance(zone, str):
        try:
            return zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError) as error:
            raise Unreadable(
                f"time zone {zone!r} is unknown here: install the tzdata package"
            ) from error
    *ticks, name = zone
    offset = dt.timedelta(*ticks)
    if name is not None:
        return dt.timezone(offset, name)
    return dt.timezone(offset)


def _raise_datetime(reader: Reader, data: memoryview) -> Any:
    text, *rest = reader.decode(data)
    moment = dt.datetime.fromisoformat(text)
    return moment.replace(fold=rest[0], tzinfo=_raise_zone(rest[1])) if rest else moment


def _raise_time(reader: Reader, data: memoryview) -> Any:
    text, *rest = reader.decode(data)
    moment = dt.time.fromisoformat(text)
    return moment.replace(fold=rest[0], tzinfo=_raise_zone(rest[1])) if rest else moment


def _raise_path(reader: Reader, data: memoryview) -> Any:
    kind, text = reader.decode(data)
    return _PATHS[kind](text)


def _raise_deque(reader: Reader, data: memoryview) -> Any:
    maxlen, items = reader.decode(data)
    return collections.deque(items, maxlen)


def _raise_counter(reader: Reader, data: memoryview) -> Any:
    return collections.Counter(dict(pairs(reader.decode(data))))


def _raise_defaultdict(reader: Reader, data: memoryview) -> Any:
    name, flat = reader.decode(data)
    factory = None if name is None else _FACTORIES[name]
    return collections.defaultdict(factory, pairs(flat))


def _decimal(data: memoryview) -> decimal.Decimal:
    # In the default context a huge exponent or signalling NaN text could trap; this one is exact.
    return decimal.Decimal(str(data, "ascii"))


handlers.update(
    {
        tuple: _lower_tuple,
        set: _lower_set,
        frozenset: _lower_set,
        collections.deque: _lower_deque,
        collections.Counter: _lower_counter,
        collections.OrderedDict: _lower_ordered,
        collections.defaultdict: _lower_defaultdict,
        bytearray: _lower_bytearray,
        complex: _lower_complex,
        decimal.Decimal: _lower_decimal,
        fractions.Fraction: _lower_fraction,
        uuid.UUID: _lower_uuid,
        range: _lower_range,
        dt.datetime: _lower_moment,
        dt.time: _lower_moment,
        dt.date: _lower_date,
        dt.timedelta: _lower_timedelta,
        dt.timezone: _lower_zone,
        zoneinfo.ZoneInfo: _lower_zone,
        type(...): _lower_singleton,
        type(msgspec.UNSET): _lower_singleton,
        **dict.fromkeys(_PATHS.values(), _lower_path),
    }
)

raisers.update(
    {
        tags.SET: lambda reader, data: set(reader.decode(data)),
        tags.FROZENSET: lambda reader, data: frozenset(reader.decode(data)),
        tags.DEQUE: _raise_deque,
        tags.COUNTER: _raise_counter,
        tags.DEFAULTDICT: _raise_defaultdict,
        tags.ORDEREDDICT: lambda reader, data: collections.OrderedDict(pairs(reader.decode(data))),
        tags.BYTEARRAY: lambda reader, data: bytearray(data),
        tags.COMPLEX: lambda reader, data: complex(*struct.unpack("<dd", data)),
        tags.DECIMAL: lambda reader, data: _decimal(data),
        tags.FRACTION: lambda reader, data: fractions.Fraction(*reader.decode(data)),
        tags.UUID: lambda reader, data: uuid.UUID(bytes=bytes(data)),
        tags.RANGE: lambda reader, data: range(*reader.decode(data)),
        tags.PATH: _raise_path,
        tags.DATETIME: _raise_datetime,
        tags.TIME: _raise_time,
        tags.DATE: lambda reader, data: dt.date.fromisoformat(str(data, "ascii")),
        tags.TIMEDELTA: lambda reader, data: dt.timedelta(*reader.decode(data)),
        tags.TZINFO: lambda reader, data: _raise_zone(reader.decode(data)),
        tags.SINGLETON: lambda reader, data: _SINGLETONS[str(data, "ascii")],
    }
)
