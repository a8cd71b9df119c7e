"""Containers of the standard library other than plain lists and dicts."""

from __future__ import annotations

import collections
from typing import Any, Final

from stepwell_runtime.codec import _tags as tags
from stepwell_runtime.codec._read import Reader, pairs, raisers
from stepwell_runtime.codec._refs import type_name
from stepwell_runtime.codec._write import Writer, handlers
from stepwell_runtime.codec.errors import Refused

# Only these: a factory read from stored data is called later, so it must not be just anything.
_FACTORIES: Final[dict[str, type]] = {
    kind.__name__: kind
    for kind in (list, dict, set, int, str, float, tuple, bool, bytes, frozenset, complex)
}


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


def _raise_deque(reader: Reader, data: memoryview) -> Any:
    maxlen, items = reader.decode(data)
    return collections.deque(items, maxlen)


def _raise_counter(reader: Reader, data: memoryview) -> Any:
    return collections.Counter(dict(pairs(reader.decode(data))))


def _raise_defaultdict(reader: Reader, data: memoryview) -> Any:
    name, flat = reader.decode(data)
    factory = None if name is None else _FACTORIES[name]
    return collections.defaultdict(factory, pairs(flat))


handlers.update(
    {
        tuple: _lower_tuple,
        set: _lower_set,
        frozenset: _lower_set,
        collections.deque: _lower_deque,
        collections.Counter: _lower_counter,
        collections.OrderedDict: _lower_ordered,
        collections.defaultdict: _lower_defaultdict,
    }
)

raisers.update(
    {
        tags.TUPLE: lambda reader, data: tuple(reader.decode(data)),
        tags.SET: lambda reader, data: set(reader.decode(data)),
        tags.FROZENSET: lambda reader, data: frozenset(reader.decode(data)),
        tags.DEQUE: _raise_deque,
        tags.COUNTER: _raise_counter,
        tags.DEFAULTDICT: _raise_defaultdict,
        tags.ORDEREDDICT: lambda reader, data: collections.OrderedDict(pairs(reader.decode(data))),
    }
)
