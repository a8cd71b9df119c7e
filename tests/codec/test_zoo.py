"""Every kind of value comes back equal and of the same type, however it is wrapped or annotated."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from stepwell_runtime.codec import Codec
from stepwell_runtime.codec._refs import type_of
from tests.codec.kinds import Box, Item, Model, Order, Struct
from tests.codec.same import anatomy
from tests.codec.zoo import ZOO

codec = Codec()

every_value = pytest.mark.parametrize(
    "value", ZOO, ids=[f"{i}-{type(value).__name__}" for i, value in enumerate(ZOO)]
)


def name_of(value: Any) -> str:
    return type(value).__name__


def is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def again(value: Any, annotation: object = Any) -> Any:
    return codec.decode(codec.encode(value, "here"), annotation)


def test_the_zoo_is_large() -> None:
    assert len(ZOO) >= 150


@every_value
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert anatomy(again(value)) == anatomy(value)


WRONG: list[object] = [int, str, list[Item], Model, uuid.UUID, dict[str, Order], None]


@every_value
def test_a_wrong_annotation_changes_nothing(value: Any) -> None:
    data = codec.encode(value, "here")
    for wrong in WRONG:
        assert anatomy(codec.decode(data, wrong)) == anatomy(value)


@every_value
def test_a_right_annotation_changes_nothing(value: Any) -> None:
    assert anatomy(again(value, type_of(value))) == anatomy(value)


WRAPS: list[Callable[[Any], Any]] = [
    lambda value: [value, value],
    lambda value: (value,),
    lambda value: {"key": {"inner": [value]}},
    lambda value: {1: value},
    lambda value: Order(1, by_name={"x": value}),
    lambda value: Struct(1, b=value),
    lambda value: Model(a=1).model_copy(update={"anything": value}),
    lambda value: [2**64, "\ud800", value],
]


@every_value
def test_a_nested_value_comes_back_as_it_was(value: Any) -> None:
    for wrap in WRAPS:
        wrapped = wrap(value)
        assert anatomy(again(wrapped)) == anatomy(wrapped)


@pytest.mark.parametrize("value", [value for value in ZOO if is_hashable(value)], ids=name_of)
def test_a_hashable_value_comes_back_as_key_and_element(value: Any) -> None:
    for wrapped in (
        {value: 1},
        {value},
        frozenset({value}),
        {(value, 1): [value]},
        Box({value}),
    ):
        assert anatomy(again(wrapped)) == anatomy(wrapped)


@every_value
def test_each_decoding_gives_a_fresh_object(value: Any) -> None:
    data = codec.encode([value], "here")
    first, second = codec.decode(data), codec.decode(data)
    assert anatomy(first) == anatomy(second)
    is_mutable = hasattr(value, "__dict__") and not isinstance(value, enum.Enum | ZoneInfo)
    if is_mutable or isinstance(value, list | dict | set | bytearray):
        assert first[0] is not second[0]
        assert first[0] is not value


@every_value
def test_encoding_does_not_change_the_value(value: Any) -> None:
    before = anatomy(value)
    codec.encode(value, "here")
    codec.digest(value)
    assert anatomy(value) == before


@every_value
def test_bytes_are_the_same_when_a_value_is_encoded_again(value: Any) -> None:
    assert codec.encode(value, "here") == codec.encode(value, "there")


@every_value
def test_a_value_that_came_back_has_the_same_digest(value: Any) -> None:
    assert codec.digest(again(value)) == codec.digest(value)
    assert len(codec.digest(value)) == 12
