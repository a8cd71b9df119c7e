"""JSON-like data from a command line or HTTP is made to fit what the code declares, or refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from stepwell_runtime.codec import Codec, SerializationError
from tests.codec.kinds import (
    Colour,
    FrozenStruct,
    Item,
    Level,
    Model,
    Order,
    Point,
    Row,
    Settings,
    Struct,
)


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        ({"a": [1]}, Any, {"a": [1]}),
        (1, int, 1),
        ("5", int, 5),
        ("x", str, "x"),
        (None, int | None, None),
        ({"name": "a", "price": 2}, Item, Item("a", 2.0)),
        ([{"name": "a"}], list[Item], [Item("a")]),
        ({"x": 1}, Point, Point(1)),
        (
            {"id": 1, "level": 2, "items": [{"name": "a"}]},
            Order,
            Order(1, level=Level.HIGH, items=[Item("a")]),
        ),
        ({"a": 1, "items": [{"name": "x"}]}, Model, Model(a=1, items=[Item("x")])),
        ("red", Colour, Colour.RED),
        ("2026-01-02", dt.date, dt.date(2026, 1, 2)),
        ("1.10", Decimal, Decimal("1.10")),
        ("12345678-1234-5678-1234-567812345678", UUID, UUID("12345678123456781234567812345678")),
        ([1, 2], tuple[int, int], (1, 2)),
        ([1, 1], set[int], {1}),
        ({"1": 2}, dict[int, int], {1: 2}),
        ({"on": True, "rate": 1}, Settings, Settings(on=True, rate=1.0)),
        ([1, "l"], Row, Row(1, "l")),
        ({"a": 1, "b": [1]}, Struct, Struct(1, [1])),
        ([{"type": "f", "someName": 1}], list[FrozenStruct], [FrozenStruct(some_name=1)]),
    ],
)
def test_data_is_made_to_fit(value: Any, annotation: object, expected: Any, codec: Codec) -> None:
    converted = codec.convert(value, annotation, "argument 'order'")
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("value", "annotation", "path", "type_name"),
    [
        ("x", int, "", "str"),
        ({"name": 5}, Item, "['name']", "int"),
        ([{"name": "a"}, {"price": 1}], list[Item], "[1]['name']", "dict"),
        ({"a": "x"}, Model, "['a']", "str"),
        ({"a": "x"}, Struct, ".a", "str"),
        ([{"a": 1}, {}], list[Struct], "[1]", "list"),
        ("green", Colour, "", "str"),
        (None, int, "", "NoneType"),
    ],
)
def test_data_that_does_not_fit_is_refused_with_its_path(
    value: Any, annotation: object, path: str, type_name: str, codec: Codec
) -> None:
    with pytest.raises(SerializationError) as caught:
        codec.convert(value, annotation, "argument 'order'")
    assert caught.value.where == "argument 'order'"
    assert caught.value.path == path
    assert caught.value.type_name == type_name
    assert "argument 'order'" in str(caught.value)


def test_an_annotation_that_cannot_be_checked_is_refused(codec: Codec) -> None:
    class Opaque:
        pass

    with pytest.raises(SerializationError, match="Opaque"):
        codec.convert({}, Opaque, "argument 'x'")
