"""Bytes that earlier versions wrote are read for ever. Add lines; never change one."""

# ruff: noqa: DTZ001 - naive times are values like others

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from stepwell_runtime.codec import Codec
from tests.codec.kinds import Access, Colour, Item, Level, Model, Pair, Point, Row, Struct
from tests.codec.same import anatomy

STORED: list[tuple[str, Any]] = [
    ("c0", None),
    (
        "86a2696401a46e616d65a178a166cb3ff8000000000000a174c3a162c40100a16c9201ff",
        {"id": 1, "name": "x", "f": 1.5, "t": True, "b": b"\x00", "l": [1, -1]},
    ),
    ("d6019201a161", (1, "a")),
    ("c70a029401a161d5019102a162", {1: "a", (2,): "b"}),
    ("d5039101", {1}),
    ("c7030491a161", frozenset({"a"})),
    ("c70905000000000000000001", 2**64),
    ("c709050000000000000000c0", -(2**70)),
    ("d40678", bytearray(b"x")),
    ("c70307eda080", "\ud800"),
    ("d808000000000000f03f0000000000000040", 1 + 2j),
    ("d609312e3130", Decimal("1.10")),
    ("c703094e614e", Decimal("NaN")),
    ("c7030a920103", Fraction(1, 3)),
    ("d80b00000000000000000000000000000005", uuid.UUID(int=5)),
    (
        "c71c0c91ba323032362d30312d30325430333a30343a30352e303030303036",
        dt.datetime(2026, 1, 2, 3, 4, 5, 6),
    ),
    (
        "c7220c93b3323032362d31302d32355430323a33303a303001ab4575726f70652f526f6d65",
        dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Rome"), fold=1),
    ),
    (
        "c71b0c93b3323032362d30312d30325430303a30303a30300094000000c0",
        dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    ),
    (
        "c71e0c93b3323032362d30312d30325430303a30303a3030009400cd0e1000a158",
        dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=1), "X")),
    ),
    ("c70a0d323032362d30312d3032", dt.date(2026, 1, 2)),
    ("c70a0e91a830313a30323a3033", dt.time(1, 2, 3)),
    ("d60f93ff0007", dt.timedelta(days=-1, microseconds=7)),
    ("c70c10ab4575726f70652f526f6d65", ZoneInfo("Europe/Rome")),
    ("c7131192ad50757265506f73697850617468a3612f62", PurePosixPath("a/b")),
    ("d61292039101", deque([1], 3)),
    ("d61393010902", range(1, 9, 2)),
    ("c7071494a16102a16201", Counter("aab")),
    ("c70b1592a46c69737492a1619101", defaultdict(list, {"a": [1]})),
    ("c7071694a16201a16102", OrderedDict([("b", 1), ("a", 2)])),
    ("c703192e2e2e", ...),
    (
        "c72c1892b874657374732e636f6465632e6b696e64733a436f6c6f757282a46e616d65a4424c5545a576616c7565c0",
        Colour.BLUE,
    ),
    (
        "c72b1892b774657374732e636f6465632e6b696e64733a4c6576656c82a46e616d65a448494748a576616c756502",
        Level.HIGH,
    ),
    (
        "c7281892b874657374732e636f6465632e6b696e64733a41636365737382a46e616d65c0a576616c756503",
        Access.READ | Access.WRITE,
    ),
    (
        "c72f1792b674657374732e636f6465632e6b696e64733a4974656d82a46e616d65a161a57072696365cb3ff8000000000000",
        Item("a", 1.5),
    ),
    ("c7201792b774657374732e636f6465632e6b696e64733a506f696e7482a17801a17902", Point(1, 2)),
    (
        "c7241792b874657374732e636f6465632e6b696e64733a53747275637482a16101a162d5019102",
        Struct(1, b=(2,)),
    ),
    ("c7241792b574657374732e636f6465632e6b696e64733a526f7782a2696401a56c6162656ca178", Row(1, "x")),
    (
        "c7261792b674657374732e636f6465632e6b696e64733a5061697282a46c65667401a5726967687402",
        Pair(1, 2),
    ),
    (
        "c7bb1793b774657374732e636f6465632e6b696e64733a4d6f64656c84a16101a56974656d7391c72f1792b674657374732e636f6465632e6b696e64733a4974656d82a46e616d65a178a57072696365cb0000000000000000a6636f6c6f7572c72c1892b874657374732e636f6465632e6b696e64733a436f6c6f757282a46e616d65a4424c5545a576616c7565c0a8616e797468696e67c082a6736368656d61cf00002d0ae858cde3a373657493a161a6636f6c6f7572a56974656d73",
        Model(a=1, items=[Item("x")], colour=Colour.BLUE),
    ),
]


@pytest.mark.parametrize(("stored", "value"), STORED, ids=[repr(value)[:40] for _, value in STORED])
def test_stored_values_are_read(stored: str, value: Any, codec: Codec) -> None:
    assert anatomy(codec.decode(bytes.fromhex(stored))) == anatomy(value)


def test_a_stored_exception_is_read(codec: Codec) -> None:
    back = codec.decode_error(bytes.fromhex(STORED_ERROR))
    assert type(back) is OSError
    assert back.errno == 5
    assert back.__notes__ == ["n"]
    assert isinstance(back.__cause__, KeyError)


STORED_ERROR = (
    "c7f11b8aa474797065a74f534572726f72a66d6f64756c65a86275696c74696e73a76d657373616765ab5b4572"
    "726e6f20355d2078a56e6f74657391a16ea66672616d657390a3726566b06275696c74696e733a4f534572726f"
    "72a461726773c4049205a178a56174747273c41382a56572726e6f05a87374726572726f72a178a87375707072"
    "657373c3a5636175736588a474797065a84b65794572726f72a66d6f64756c65a86275696c74696e73a76d6573"
    "73616765a3276b27a56e6f74657390a66672616d657390a3726566b16275696c74696e733a4b65794572726f72"
    "a461726773c40391a16ba56174747273c40180"
)
