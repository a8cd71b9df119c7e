"""Random values come back, random bytes do no harm."""

from __future__ import annotations

import time
import tracemalloc
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stepwell_runtime.codec import Codec, DecodingError
from tests.codec.kinds import Item, Model
from tests.codec.same import anatomy
from tests.codec.strategies import VALUES
from tests.codec.zoo import ZOO

codec = Codec()
relaxed = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    max_examples=200,
)


@relaxed
@given(VALUES)
def test_random_values_come_back_as_they_were(value: Any) -> None:
    data = codec.encode(value, "here")
    back = codec.decode(data)
    assert anatomy(back) == anatomy(value)
    assert codec.encode(back, "here") == codec.encode(back, "there")
    assert codec.digest(back) == codec.digest(value)
    codec.to_json(data)


@relaxed
@given(st.dictionaries(st.text(max_size=3), st.integers(), max_size=6), st.randoms())
def test_the_digest_does_not_see_the_order(value: dict[str, int], random: Any) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert codec.digest(dict(items)) == codec.digest(value)
    keyed = {(key, number): {key} for key, number in items}
    assert codec.digest(keyed) == codec.digest({(k, n): {k} for k, n in value.items()})


def harmless(data: bytes) -> None:
    for trusted in (True, False):
        with suppress(DecodingError):
            codec.decode(data, list[Item] | Model, trusted=trusted)
    with suppress(DecodingError):
        codec.decode_error(data)
    with suppress(DecodingError):
        codec.error_info(data)
    codec.to_json(data)


@relaxed
@given(st.binary(max_size=200))
@example(b"\xdd\xff\xff\xff\xff")
@example(b"\xdf\xff\xff\xff\xff")
@example(b"\xc6\xff\xff\xff\xff")
@example(b"\x91" * 100_000)
@example(b"\x81\x81\x01\x01\x01")
def test_random_bytes_raise_decoding_error_and_nothing_else(data: bytes) -> None:
    harmless(data)


@relaxed
@given(
    code=st.integers(-128, 127),
    payload=st.one_of(
        st.binary(max_size=30),
        st.recursive(
            st.one_of(st.none(), st.integers(-5, 2**40), st.text(max_size=5), st.floats()),
            lambda inner: st.one_of(
                st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=6,
        ).map(msgspec.msgpack.encode),
    ),
)
def test_random_extensions_raise_decoding_error_and_nothing_else(code: int, payload: bytes) -> None:
    harmless(msgspec.msgpack.encode(msgspec.msgpack.Ext(code, payload)))


ENCODED = [codec.encode(value, "here") for value in ZOO]
ENCODED.append(codec.encode_error(ExceptionGroup("g", [OSError(2, "x"), KeyError("k")]), "here"))


@relaxed
@given(st.sampled_from(ENCODED), st.data())
def test_damaged_values_raise_decoding_error_and_nothing_else(data: bytes, draw: Any) -> None:
    damaged = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = draw.draw(st.integers(0, 255))
    cut = draw.draw(st.integers(0, len(damaged)))
    harmless(bytes(damaged))
    harmless(bytes(damaged[:cut]))


def _nested_extension(depth: int) -> bytes:
    data = b"\x90"
    for _ in range(depth):
        data = msgspec.msgpack.encode(msgspec.msgpack.Ext(1, b"\x91" + data))
    return data


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\xff\xff\xff\xff" + b"\x00" * 1000,
        b"\xdf\xff\xff\xff\xff" + b"\xa1a\x00" * 1000,
        _nested_extension(3000),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(9, b"1E+99999999999999999999")),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(10, msgspec.msgpack.encode([1, 0]))),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(18, msgspec.msgpack.encode([2**62, [1]]))),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(19, msgspec.msgpack.encode([0, 2**62, 1]))),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"\xff" * 1_000_000)),
    ],
    ids=["array", "map", "nested", "decimal", "fraction", "deque", "range", "bigint"],
)
def test_hostile_sizes_cost_little_memory_and_time(data: bytes) -> None:
    tracemalloc.start()
    begun = time.monotonic()
    try:
        harmless(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60_000_000
    assert time.monotonic() - begun < 5
