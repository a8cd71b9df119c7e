"""Lowering: a value becomes a tree of native msgpack values and tagged extensions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import NoneType
from typing import Any, Final

import msgspec

from stepwell_runtime.codec import _tags as tags
from stepwell_runtime.codec._refs import type_name, type_of
from stepwell_runtime.codec._refusals import why_not
from stepwell_runtime.codec.errors import Refused, TooMany

MAX_DEPTH: Final = 100

encode_native = msgspec.msgpack.Encoder().encode
_encode_sorted = msgspec.msgpack.Encoder(order="deterministic").encode

Ext = msgspec.msgpack.Ext
Handler = Callable[["Writer", Any, int], object]

SCALARS: Final = frozenset({NoneType, bool, int, float, str, bytes})
_NATIVE: Final = frozenset({*SCALARS, list, dict})
# Range and encodability of these are looked at only in a second pass, when msgspec has refused one.
_CHECKED_SCALARS: Final = SCALARS - {int, str}
_all_str = frozenset({str}).issuperset
_all_scalar = SCALARS.issuperset
_all_native = _NATIVE.issuperset


def _is_native(value: object, limit: int) -> bool:
    """True when msgpack itself keeps the value and its types.

    Goes down level by level: no recursion, so depth is counted, and a value that holds itself ends.
    """
    if type_of(value) not in _NATIVE:
        return False
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            limit -= len(container)
            items: Collection[Any] = container
            kind = type_of(container)
            if kind is dict:
                if not _all_str(map(type, items)):
                    return False
                items = container.values()
            if _all_scalar(map(type, items)):
                continue
            containers: list[Any] = [item for item in items if type(item) not in SCALARS]
            if not _all_native(map(type, containers)):
                return False
            below += containers
        if not below:
            return True
        if limit < 0:
            return False
        level = below
    return False


def write(value: Any, limit: int) -> bytes:
    """Encode. Raises Refused, or TooMany past `limit` elements."""
    kind = type_of(value)
    try:
        if (
            kind in SCALARS
            or (kind is list and _all_scalar(map(type, value)))
            or _is_native(value, limit)
        ):
            return encode_native(value)
        return encode_native(Writer(limit, SCALARS).lower(value, 0))
    except (OverflowError, UnicodeEncodeError):
        return encode_native(Writer(limit, _CHECKED_SCALARS).lower(value, 0))


def write_canonical(value: Any, limit: int) -> bytes:
    """Encode so that the order of dicts and sets does not show."""
    try:
        if type(value) in SCALARS or _is_native(value, limit):
            return _encode_sorted(value)
        return _encode_sorted(Writer(limit, SCALARS, canonical=True).lower(value, 0))
    except (OverflowError, UnicodeEncodeError):
        writer = Writer(limit, _CHECKED_SCALARS, canonical=True)
        return _encode_sorted(writer.lower(value, 0))


class Writer:
    """The state of one encoding."""

    __slots__ = ("_left", "canonical", "encode", "scalars")

    def __init__(self, limit: int, scalars: frozenset[type], *, canonical: bool = False) -> None:
        self._left = limit
        self.scalars = scalars
        self.canonical = canonical
        self.encode = _encode_sorted if canonical else encode_native

    def lower(self, value: Any, depth: int) -> object:
        kind = type_of(value)
        if kind in self.scalars:
            return value
        handler = handlers.get(kind)
        if handler is None:
            handler = _find_handler(kind)
        return handler(self, value, depth)

    def enter(self, size: int, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise Refused(
                "nesting",
                f"deeper than {MAX_DEPTH} levels, or the value contains itself; flatten it",
            )
        self._left -= size
        if self._left < 0:
            raise TooMany

    def ext(self, code: int, payload: object) -> Ext:
        return Ext(code, self.encode(payload))

    def items(self, values: Collection[Any], depth: int, *, unordered: bool = False) -> list[Any]:
        self.enter(len(values), depth)
        if self.scalars.issuperset(map(type, values)):
            return list(values)
        lowered: list[Any] = []
        try:
            for value in values:
                lowered.append(self.lower(value, depth + 1))  # noqa: PERF401 - its length is the path
        except Refused as refused:
            refused.steps.append("<element>" if unordered else f"[{len(lowered)}]")
            raise
        return lowered

    def pairs(self, mapping: Mapping[Any, Any], depth: int, *, ordered: bool = False) -> list[Any]:
        """Keys and values in turn."""
        self.enter(len(mapping), depth)
        flat: list[tuple[object, object]] = []
        for key, value in mapping.items():
            try:
                lowered = self.lower(value, depth + 1)
            except Refused as refused:
                refused.steps.append(f"[{_show(key)}]")
                raise
            flat.append((self._key(key, depth), lowered))
        if self.canonical and not ordered:
            flat.sort(key=lambda pair: self.encode(pair[0]))
        return [part for pair in flat for part in pair]

    def _key(self, key: Any, depth: int) -> object:
        try:
            return self.lower(key, depth + 1)
        except Refused as refused:
            refused.steps.append(f"<key {_show(key)}>")
            raise

    def fields(
        self, values: dict[str, Any], depth: int, step: Callable[[str], str] = ".{}".format
    ) -> dict[str, Any]:
        self.enter(len(values), depth)
        scalars = self.scalars
        if scalars.issuperset(map(type, values.values())):
            return values
        lowered: dict[str, Any] = {}
        name = ""
        try:
            for name, value in values.items():
                lowered[name] = value if type(value) in scalars else self.lower(value, depth + 1)
        except Refused as refused:
            refused.steps.append(step(name))
            raise
        return lowered


def _show(key: object) -> str:
    try:
        text = repr(key)
    except Exception:  # noqa: BLE001 - a user's __repr__ must not hide the error that is being reported
        text = f"<{type(key).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."


def _item_step(key: str) -> str:
    return f"[{_show(key)}]"


def _lower_list(writer: Writer, value: list[Any], depth: int) -> object:
    return writer.items(value, depth)


def _lower_dict(writer: Writer, value: dict[Any, Any], depth: int) -> object:
    if not _all_str(map(type, value)):
        return writer.ext(tags.MAP, writer.pairs(value, depth))
    if int not in writer.scalars and any(not _is_utf8(key) for key in value):
        return writer.ext(tags.MAP, writer.pairs(value, depth))
    return writer.fields(value, depth, _item_step)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _lower_int(writer: Writer, value: int, depth: int) -> object:
    if -(2**63) <= value < 2**64:
        return value
    size = value.bit_length() // 8 + 1
    return Ext(tags.BIGINT, value.to_bytes(size, "little", signed=True))


def _lower_str(writer: Writer, value: str, depth: int) -> object:
    return value if _is_utf8(value) else Ext(tags.STR, value.encode("utf-8", "surrogatepass"))


def _lower_scalar(writer: Writer, value: object, depth: int) -> object:
    return value


handlers: dict[type, Handler] = {
    list: _lower_list,
    dict: _lower_dict,
    int: _lower_int,
    str: _lower_str,
    **dict.fromkeys(_CHECKED_SCALARS, _lower_scalar),
}

# Tried in order for a type met for the first time; each returns a handler, or None: "not mine".
finders: list[Callable[[type], Handler | None]] = []


def _find_handler(kind: type) -> Handler:
    for finder in finders:
        handler = finder(kind)
        if handler is not None:
            handlers[kind] = handler
            return handler
    raise Refused(type_name(kind), why_not(kind, handlers))
