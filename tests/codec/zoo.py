"""Values that must come back as they went in."""

# ruff: noqa: DTZ001, DTZ901 - naive times are values like others
from __future__ import annotations

import datetime as dt
import ipaddress
import math
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pydantic

from tests.codec.kinds import (
    Access,
    AliasModel,
    AppendingStruct,
    Bits,
    Box,
    Checked,
    Child,
    Colour,
    Computed,
    CountingModel,
    CountingStruct,
    Derived,
    Described,
    DictStruct,
    Empty,
    EmptyModel,
    EmptyRow,
    EmptySlots,
    EmptyStruct,
    FatRow,
    Frozen,
    FrozenModel,
    FrozenStruct,
    GenericModel,
    IntModel,
    Item,
    Level,
    Model,
    Names,
    OpenModel,
    Order,
    Outer,
    Pair,
    Planet,
    Point,
    PrivateModel,
    Row,
    Settings,
    Slotted,
    Struct,
    Swapped,
    Word,
)

ROME = ZoneInfo("Europe/Rome")
EAST = dt.timezone(dt.timedelta(hours=5, minutes=30))


def _computed() -> Computed:
    value = Computed(3, scale=5)
    assert value.lazy == [3]
    return value


def _slotted() -> Slotted:
    value = Slotted(1)
    value.hide(7)
    value.extra = [2]  # type: ignore[attr-defined]  # a slot of its base
    return value


def _fat_row() -> FatRow:
    value = FatRow(1, "x")
    value.comment = "c"
    return value


def _private() -> PrivateModel:
    value = PrivateModel(a=1)
    value._secret = 5
    return value


def _child() -> Child:
    value = Child(1)
    value.note = "n"  # type: ignore[attr-defined]  # what users do
    return value


def _dict_struct() -> DictStruct:
    value = DictStruct(1)
    value.note = "n"  # type: ignore[attr-defined]  # what dict=True is for
    return value


PLAIN: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
    -(2**63) - 1,
    10**400,
    -(10**400),
    0.0,
    -0.0,
    1.0,
    1e308,
    5e-324,
    math.inf,
    -math.inf,
    math.nan,
    "",
    "text",
    "ünï©ødé 🎈",
    "nul\0inside",
    "\ud800 lone surrogate",
    b"",
    b"\x00\xff",
    bytearray(),
    bytearray(b"\x00\xff"),
    1j,
    complex(math.nan, -0.0),
    Decimal("1.10"),
    Decimal("NaN"),
    Decimal("-NaN123"),
    Decimal("sNaN"),
    Decimal("-Infinity"),
    Decimal("-0E+7"),
    Decimal("1E+999999"),
    Fraction(1, 3),
    Fraction(-(10**30), 7),
    range(3),
    range(10, 0, -2),
    range(10**30),
    uuid.UUID(int=0),
    uuid.UUID("12345678-1234-5678-1234-567812345678"),
    ...,
    msgspec.UNSET,
]

DATES: list[Any] = [
    dt.datetime.min,
    dt.datetime.max,
    dt.datetime(2026, 3, 29, 2, 30),
    dt.datetime(2026, 10, 25, 2, 30, fold=1),
    dt.datetime(2026, 10, 25, 2, 30, tzinfo=ROME, fold=0),
    dt.datetime(2026, 10, 25, 2, 30, tzinfo=ROME, fold=1),
    dt.datetime(2026, 3, 29, 2, 30, tzinfo=ROME),
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    dt.datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=EAST),
    dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=-1, microseconds=5))),
    dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1), "CET")),
    dt.datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")),
    dt.date.min,
    dt.date.max,
    dt.date(2026, 2, 28),
    dt.time.min,
    dt.time.max,
    dt.time(1, 2, 3, 4, tzinfo=ROME, fold=1),
    dt.time(1, 2, tzinfo=EAST),
    dt.timedelta(0),
    dt.timedelta(microseconds=1),
    dt.timedelta(days=-3, microseconds=-1),
    dt.timedelta.max,
    dt.timedelta.min,
    dt.UTC,
    EAST,
    ROME,
]

TEXTS: list[Any] = [
    ipaddress.ip_address("127.0.0.1"),
    ipaddress.ip_address("fe80::1%eth0"),
    ipaddress.ip_network("10.0.0.0/8"),
    ipaddress.ip_interface("::1/64"),
    pydantic.HttpUrl("https://user@example.org:8080/a?b=c#d"),
    pydantic.AnyUrl("x://y"),
    pydantic.PostgresDsn("postgresql://u:p@h1:1,h2:2/db"),
]

PATHS: list[Any] = [
    Path("a/b.txt"),
    Path("/"),
    Path(),
    Path("caf\udce9"),
    PurePath("x"),
    PurePosixPath("/etc/../x"),
    PureWindowsPath("C:\\x\\y"),
]

CONTAINERS: list[Any] = [
    [],
    [1, "a", None, [2.0, [True]]],
    {},
    {"id": 1, "name": "x"},
    {"deep": {"er": {"list": [{"a": [1]}]}}},
    {1: "int", "1": "str", 1.5: "float", None: "none", b"b": "bytes"},
    {True: "bool"},
    {(1, "a"): {"x": (2,)}},
    {frozenset({1, 2}): 1},
    {dt.date(2026, 1, 1): Decimal("0.1")},
    {"": 0, "\udcff": 1},
    (),
    (1,),
    (1, (2, [3, (4,)])),
    [(1, 2), (3, 4)],
    set[int](),
    {1, 2, 3},
    {1, "a", None, (1, 2), 2.5},
    frozenset({"a", "b"}),
    {frozenset({frozenset({1})})},
    deque([1, 2]),
    deque([1, 2], maxlen=2),
    deque(maxlen=0),
    Counter("abracadabra"),
    Counter({(1, 2): -3}),
    Counter[str]("a"),
    defaultdict(list, {"a": [1]}),
    defaultdict(None, {1: 2}),
    defaultdict(int),
    OrderedDict([("b", 1), ("a", (2,))]),
    OrderedDict([(2, 1), (1, 2)]),
    [2**64, "\ud800", {"a": -(2**70)}],
    Settings(on=True, rate=0.5),
]

ENUMS: list[Any] = [
    Colour.RED,
    Colour.BLUE,
    Colour.CRIMSON,
    Level.HIGH,
    Word.YES,
    Access.READ,
    Access.READ | Access.WRITE,
    Access(0),
    Bits.A | Bits.B,
    Bits(0),
    Bits(8),
    Planet.EARTH,
    Outer.Mood.GOOD,
    [Colour.RED, {"level": Level.LOW}],
    {Colour.RED: Level.HIGH, Word.YES: Access.WRITE},
]

OBJECTS: list[Any] = [
    Item("a"),
    Item("a", math.nan),
    Point(1, 2),
    Frozen(frozenset({"x"}), at=(1, 2)),
    Order(1, items=[Item("a", 1.0)], by_name={"x": Item("b")}, level=Level.HIGH),
    Derived(1, note="n"),
    _computed(),
    Described("abc"),
    Box(1),
    Box[int](1),
    Box((Point(1), Colour.RED)),
    _slotted(),
    Outer.Inner(1),
    Pair(1, [2]),
    Row(1),
    Row(1, "x"),
    _fat_row(),
    Struct(1),
    Struct(1, b=Struct(2, b=(Item("x"),))),
    FrozenStruct(some_name=1, other=(1, 2)),
    CountingStruct(1),
    _dict_struct(),
    Struct(1, b=msgspec.UNSET),
    AppendingStruct(["a"]),
    Empty(),
    EmptySlots(),
    EmptyStruct(),
    EmptyModel(),
    EmptyRow(),
    _child(),
    Model(a=1),
    Model(a=1, items=[Item("x", 1.5)], colour=Colour.BLUE, anything=(1, {2})),
    Model.model_construct(a="not an int"),
    AliasModel(someName=3),
    OpenModel(a=1, b=(2,), c=None),  # type: ignore[call-arg]  # extra fields
    OpenModel(a=1),
    Swapped(a=1, b=2),
    PrivateModel(a=1),
    _private(),
    FrozenModel(a=1),
    CountingModel(n=1),
    Names(["a", "b"]),
    GenericModel(content=[1]),
    IntModel(content=1),
    Checked(1, [2]),
    {"order": Order(1), "rows": [Row(1), Row(2)], "when": dt.datetime(2026, 1, 1)},
    {Point(1, 2): Point(3, 4), FrozenStruct(some_name=1): 1, FrozenModel(a=2): 2},
    [Model(a=1, anything=Order(2, by_name={"m": Model(a=3, anything=Colour.BLUE)}))],
]

ZOO: list[Any] = [*PLAIN, *DATES, *TEXTS, *PATHS, *CONTAINERS, *ENUMS, *OBJECTS]
