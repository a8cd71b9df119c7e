"""Stored values shown to people: always something, always JSON, nothing imported."""

from __future__ import annotations

import datetime as dt
import json
import math
import sys
from collections import Counter, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest

from stepwell_runtime.codec import Codec
from tests.codec.conftest import Deploy
from tests.codec.kinds import Bits, Colour, Item, Model, OpenModel, Order, Planet, Row
from tests.codec.zoo import ROME, ZOO

SHOWN: list[tuple[Any, Any]] = [
    (None, None),
    (
        {"m": math.nan, "i": math.inf, "z": -math.inf},
        {"m": "NaN", "i": "Infinity", "z": "-Infinity"},
    ),
    (b"text", "text"),
    (b"\xff\x00", "base64:/wA="),
    (bytearray(b"text"), "text"),
    ((1, {2}), [1, [2]]),
    (deque([1], 3), [1]),
    ({1: "a", (1, 2): "b", None: "c", b"k": 1}, {"1": "a", "[1,2]": "b", "null": "c", "k": 1}),
    (Counter("aa"), {"a": 2}),
    (Item("a", 1.5), {"name": "a", "price": 1.5}),
    (Order(1, items=[Item("x")]).items, [{"name": "x", "price": 0.0}]),
    (Model(a=1), {"a": 1, "items": [], "colour": "red", "anything": None}),
    (OpenModel.model_validate({"a": 1, "b": 2}), {"a": 1, "b": 2}),
    (Row(1), {"id": 1, "label": "none"}),
    ([Colour.RED, Colour.BLUE, Bits(3), Planet.EARTH], ["red", "BLUE", 3, "EARTH"]),
    (Decimal("1.10"), "1.10"),
    (Fraction(1, 3), "1/3"),
    (1 + 2j, "(1+2j)"),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (PurePosixPath("/a"), "/a"),
    (2**64, "18446744073709551616"),
    (2**63, 2**63),
    (1 << 100_000, "<100,001 bits>"),
    (range(3), "range(0, 3, 1)"),
    (dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC), "2026-01-02T03:04:00 UTC"),
    (dt.datetime(2026, 1, 2, 3, 4, tzinfo=ROME), "2026-01-02T03:04:00 Europe/Rome"),
    (dt.date(2026, 1, 2), "2026-01-02"),
    (dt.timedelta(hours=1), "1:00:00"),
    ("\ud800", "\\ud800"),
    ({"\ud800": 1}, {"\\ud800": 1}),
]


@pytest.mark.parametrize(
    ("value", "shown"), SHOWN, ids=[type(value).__name__ for value, _ in SHOWN]
)
def test_values_are_shown_as_plain_json(value: Any, shown: Any, codec: Codec) -> None:
    assert codec.to_json(codec.encode(value, "here")) == shown


@pytest.mark.parametrize("value", ZOO, ids=lambda value: type(value).__name__)
def test_every_value_is_strict_json_and_utf8(value: Any, codec: Codec) -> None:
    for nested in (value, [value], {"k": value}, {1: value}):
        shown = codec.to_json(codec.encode(nested, "here"))
        text = json.dumps(shown, allow_nan=False, ensure_ascii=False)
        assert json.loads(text.encode()) == shown
        assert "cannot be read" not in text


def test_nothing_is_imported(codec: Codec, deploy: Deploy) -> None:
    module = deploy("app", "@dataclass\nclass M:\n    a: int\nclass E(Exception): pass\n")
    value = codec.encode(module.M(1), "here")
    error = codec.encode_error(module.E("m"), "here")
    del sys.modules["app"]
    assert codec.to_json(value) == {"a": 1}
    assert codec.to_json(error) == {"error": "app.E", "message": "m"}
    assert codec.error_info(error).module == "app"
    assert "app" not in sys.modules


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x92\x01", b"\xc7\x01\x63\x00", b"\x01\x02"])
def test_damaged_data_is_shown_as_such(data: bytes, codec: Codec) -> None:
    shown = codec.to_json(data)
    assert isinstance(shown, str)
    assert "cannot be read" in shown or "unknown kind" in shown
