"""The digest of arguments: equal values agree, in any order, in any process; others do not."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import subprocess
import sys
from typing import Any

import pytest

from stepwell_runtime.codec import Codec
from tests.codec.kinds import Colour, Item, Model, Order, Row, Struct


@dataclasses.dataclass
class Noted:
    a: int
    note: str = dataclasses.field(default="", compare=False)


def _marked(mark: str) -> Item:
    value = Item("a")
    value.mark = mark  # type: ignore[attr-defined]  # an attribute beside the fields
    return value


SAME: list[tuple[Any, Any]] = [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({1: "a", "1": "b"}, {"1": "b", 1: "a"}),
    ({"x": [{"a": 1, "b": (1,)}]}, {"x": [{"b": (1,), "a": 1}]}),
    ({"c", "a", "b"}, {"b", "c", "a"}),
    ({(2, 1), (1, 2), None}, {None, (1, 2), (2, 1)}),
    (collections.Counter("abc"), collections.Counter("cba")),
    (collections.defaultdict(int, a=1, b=2), collections.defaultdict(int, b=2, a=1)),
    (Order(1, by_name={"a": 1, "b": {3, 4}}), Order(1, by_name={"b": {4, 3}, "a": 1})),
    (Model(a=1, items=[]), Model(a=1)),
    (_marked("one"), _marked("two")),
    (Noted(1, note="a"), Noted(1, note="b")),
    ({"": 2**70, "\ud800": {1, 2}}, {"\ud800": {2, 1}, "": 2**70}),
]


@pytest.mark.parametrize(("left", "right"), SAME)
def test_equal_values_have_equal_digests(left: Any, right: Any, codec: Codec) -> None:
    assert left == right
    assert codec.digest(left) == codec.digest(right)


DIFFERENT: list[Any] = [
    1,
    True,
    1.0,
    "1",
    b"1",
    bytearray(b"1"),
    [1],
    (1,),
    {1},
    frozenset({1}),
    {"1": 1},
    {1: 1},
    {"a": 1, "b": 2},
    {"a": 2, "b": 1},
    collections.OrderedDict[str, int](a=1, b=2),
    collections.OrderedDict[str, int](b=2, a=1),
    [1, 2],
    [2, 1],
    Item("a", 1.0),
    Struct("a", 1.0),  # type: ignore[arg-type]  # only its digest matters
    Row(1),
    (1, "none"),
    Colour.RED,
    "red",
    None,
    [],
    {},
    "",
]


def test_different_values_have_different_digests(codec: Codec) -> None:
    for left, right in itertools.combinations(DIFFERENT, 2):
        assert codec.digest(left) != codec.digest(right), (left, right)


def test_the_digest_is_the_same_in_every_process(codec: Codec) -> None:
    code = (
        "from stepwell_runtime.codec import Codec\n"
        "value = {'tags': {f'tag{i}' for i in range(50)}, 'n': {frozenset('abc'): 1}}\n"
        "print(Codec().digest(value).hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    value = {"n": {frozenset("cba"): 1}, "tags": {f"tag{i}" for i in range(50)}}
    assert found == {codec.digest(value).hex() + "\n"}
