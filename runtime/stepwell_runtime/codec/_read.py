"""Raising: tagged extensions become the values they were lowered from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from stepwell_runtime.codec import _tags as tags
from stepwell_runtime.codec._plans import Plan
from stepwell_runtime.codec.errors import Unreadable

PlanFor = Callable[[str], Plan]
Raiser = Callable[["Reader", memoryview], Any]


class Reader:
    """Decodes with one way of finding classes; made once and used again."""

    __slots__ = ("decode", "plan_for", "trusted")

    def __init__(self, plan_for: PlanFor, *, trusted: bool) -> None:
        self.plan_for = plan_for
        self.trusted = trusted
        decoder = msgspec.msgpack.Decoder(ext_hook=self._raise)
        self.decode: Callable[[bytes | memoryview], Any] = decoder.decode

    def _raise(self, code: int, data: memoryview) -> Any:
        raiser = raisers.get(code)
        if raiser is None:
            raise Unreadable(f"unknown kind of value ({code}): written by a newer Stepwell")
        return raiser(self, data)


def top_ref(data: bytes) -> str:
    """The class reference of the value itself, "" when it is none of a class."""
    outer = msgspec.msgpack.decode(data)
    if not isinstance(outer, msgspec.msgpack.Ext) or outer.code not in (tags.OBJECT, tags.ENUM):
        return ""
    return str(msgspec.msgpack.decode(outer.data)[0])


def pairs(flat: list[Any]) -> zip[tuple[Any, Any]]:
    if len(flat) % 2:
        raise Unreadable("a mapping with a key that has no value: the data is damaged")
    keys = iter(flat)
    return zip(keys, keys, strict=True)


def _raise_map(reader: Reader, data: memoryview) -> Any:
    return dict(pairs(reader.decode(data)))


def _raise_object(reader: Reader, data: memoryview) -> Any:
    ref, fields, *state = reader.decode(data)
    return reader.plan_for(ref).build(fields, state[0] if state else {}, trusted=reader.trusted)


def _raise_error(reader: Reader, data: memoryview) -> Any:
    raise Unreadable("this is a stored exception, not a value")


def _raise_bigint(reader: Reader, data: memoryview) -> Any:
    return int.from_bytes(data, "little", signed=True)


def _raise_str(reader: Reader, data: memoryview) -> Any:
    return str(data, "utf-8", "surrogatepass")


raisers: Final[dict[int, Raiser]] = {
    tags.MAP: _raise_map,
    tags.OBJECT: _raise_object,
    tags.ENUM: _raise_object,
    tags.BIGINT: _raise_bigint,
    tags.STR: _raise_str,
    tags.ERROR: _raise_error,
}
