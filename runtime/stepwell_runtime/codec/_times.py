"""Dates, times, spans and time zones."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from typing import Any

from stepwell_runtime.codec import _tags as tags
from stepwell_runtime.codec._read import Reader, raisers
from stepwell_runtime.codec._refs import type_name
from stepwell_runtime.codec._write import Ext, Writer, handlers
from stepwell_runtime.codec.errors import Refused, Unreadable


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


def _raise_datetime(reader: Reader, data: memoryview) -> Any:
    text, *rest = reader.decode(data)
    moment = dt.datetime.fromisoformat(text)
    return moment.replace(fold=rest[0], tzinfo=_raise_zone(rest[1])) if rest else moment


def _raise_time(reader: Reader, data: memoryview) -> Any:
    text, *rest = reader.decode(data)
    moment = dt.time.fromisoformat(text)
    return moment.replace(fold=rest[0], tzinfo=_raise_zone(rest[1])) if rest else moment


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


handlers.update(
    {
        dt.datetime: _lower_moment,
        dt.time: _lower_moment,
        dt.date: _lower_date,
        dt.timedelta: _lower_timedelta,
        dt.timezone: _lower_zone,
        zoneinfo.ZoneInfo: _lower_zone,
    }
)

raisers.update(
    {
        tags.DATETIME: _raise_datetime,
        tags.TIME: _raise_time,
        tags.DATE: lambda reader, data: dt.date.fromisoformat(str(data, "ascii")),
        tags.TIMEDELTA: lambda reader, data: dt.timedelta(*reader.decode(data)),
        tags.TZINFO: lambda reader, data: _raise_zone(reader.decode(data)),
    }
)
