"""A signal's value is checked against its type, as far as that can be told without building it."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NewType, Protocol, TypedDict

import pytest

from stepwell_runtime.fitting import fits


@dataclass
class Point:
    x: int


class Special(Point): ...


class Colour(enum.Enum):
    RED = "red"


class Options(TypedDict, total=False):
    size: int


class HasSize(Protocol):
    def size(self) -> int: ...


Name = NewType("Name", str)

FITTING: list[tuple[Any, Any]] = [
    (1, int),
    (1, float),
    (1.5, float),
    (True, bool),
    ("a", str),
    (None, None),
    (None, type(None)),
    (None, int | None),
    (5, object),
    (5, Any),
    (Point(1), Point),
    (Special(1), Point),
    (Colour.RED, Colour),
    ("yes", Literal["yes", "no"]),
    ([1, 2], list[int]),
    ([], list[int]),
    ({"a": 1}, dict[str, int]),
    ({"a": [None, 1]}, dict[str, list[int | None]]),
    ((1, "a"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]),
    ({1}, set[int]),
    ({"size": 1}, Options),
    (Point(1), Annotated[Point, "a note"]),
    ([1], Sequence[int]),
    ({"a": 1}, Mapping[str, int]),
    (Point(1), HasSize),
    ("a", Name),
]
UNFIT: list[tuple[Any, Any]] = [
    (True, int),
    (True, float),
    (1, bool),
    (1.0, int),
    ("1", int),
    (None, int),
    (0, None),
    ({"x": 1}, Point),
    ("red", Colour),
    ("maybe", Literal["yes", "no"]),
    (True, Literal[1]),
    ([1, "2"], list[int]),
    ((1,), list[int]),
    ({"a": "b"}, dict[str, int]),
    ({1: 1}, dict[str, int]),
    ((1,), tuple[int, str]),
    ((1, "a"), tuple[int, ...]),
    ("a", int | None),
    ([1], Options),
    (5, Sequence[int]),
]


@pytest.mark.parametrize(("value", "annotation"), FITTING)
def test_a_value_of_the_type_fits(value: Any, annotation: Any) -> None:
    assert fits(value, annotation)


@pytest.mark.parametrize(("value", "annotation"), UNFIT)
def test_a_value_of_another_type_does_not(value: Any, annotation: Any) -> None:
    assert not fits(value, annotation)
