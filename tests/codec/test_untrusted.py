"""Data from clients: nothing is imported, and only classes that the receiver named are built."""

from __future__ import annotations

import enum
import sys
from collections import deque
from typing import Annotated, Any, NewType, Optional, TypedDict, Union

import msgspec
import pydantic
import pytest

from stepwell_runtime.codec import Codec, DecodingError
from tests.codec.conftest import Deploy
from tests.codec.kinds import (
    AliasModel,
    Colour,
    CountingModel,
    Derived,
    Item,
    Level,
    Model,
    Names,
    OpenModel,
    Order,
    Point,
    PrivateModel,
    Row,
    Struct,
    Swapped,
)
from tests.codec.same import anatomy
from tests.codec.zoo import CONTAINERS, DATES, PATHS, PLAIN


class Wish(TypedDict):
    item: Item


Alias = NewType("Alias", Item)


def send(codec: Codec, value: Any, annotation: object = Any) -> Any:
    return codec.decode(codec.encode(value, "client"), annotation, trusted=False)


@pytest.mark.parametrize("value", [*PLAIN, *DATES, *PATHS, *CONTAINERS], ids=type)
def test_values_without_classes_of_users_need_no_annotation(value: Any, codec: Codec) -> None:
    assert anatomy(send(codec, value)) == anatomy(value)


@pytest.mark.parametrize("value", [Item("a"), Colour.RED, Model(a=1), Struct(1), Row(1), Point(1)])
def test_a_class_that_nobody_named_is_refused(value: Any, codec: Codec) -> None:
    for annotation in (Any, int, list[str], object):
        with pytest.raises(DecodingError, match="annotate the parameter"):
            send(codec, value, annotation)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Item("a"), Item),
        (Item("a"), Item | None),
        (Item("a"), Optional[Item]),  # noqa: UP045 - the old spelling is what is tested
        (Item("a"), Union[int, Item]),  # noqa: UP007 - as above
        (Item("a"), Annotated[Item, "note"]),
        (Item("a"), Annotated[Item, ["unhashable"]]),
        (Item("a"), Alias),
        ([Item("a")], list[Item]),
        ((Item("a"), 1), tuple[Item, int]),
        ({"a": [Item("a")]}, dict[str, list[Item]]),
        (deque([Item("a")]), deque[Item]),
        ({"item": Item("a")}, Wish),
        (Order(1, items=[Item("a")], level=Level.HIGH), Order),
        (Model(a=1, items=[Item("x")], colour=Colour.BLUE), Model),
        (Struct(1), Struct),
        (Row(1), Row),
        (Colour.BLUE, Colour),
    ],
)
def test_classes_that_the_annotation_reaches_are_built(
    value: Any, annotation: object, codec: Codec
) -> None:
    for _ in range(2):
        assert send(codec, value, annotation) == value


def test_loaded_subclasses_of_what_the_annotation_reaches_are_built(
    codec: Codec, deploy: Deploy
) -> None:
    module = deploy(
        "app",
        "import abc\n"
        "class Shape(abc.ABC): pass\n"
        "@dataclass\nclass Circle(Shape):\n    r: int\n"
        "@dataclass\nclass Other:\n    r: int\n",
    )
    circle = codec.encode([module.Circle(1)], "client")
    shapes: Any = list[module.Shape]  # type: ignore[name-defined]  # made at run time
    assert codec.decode(circle, shapes, trusted=False) == [module.Circle(1)]
    with pytest.raises(DecodingError):
        send(codec, [module.Other(1)], shapes)
    with pytest.raises(DecodingError):
        send(codec, [module.Other(1)], list[object])
    assert send(codec, Derived(1), Order) == Derived(1)
    sys.modules.pop("app")
    with pytest.raises(DecodingError):
        codec.decode(circle, shapes, trusted=False)
    assert "app" not in sys.modules


def test_a_lazy_module_is_not_woken_from_outside(codec: Codec, deploy: Deploy) -> None:
    module = deploy(
        "app",
        "@dataclass\nclass Base:\n    a: int\n@dataclass\nclass Lazy(Base): pass\n"
        "woken = []\ndef __getattr__(name): woken.append(name)\n",
    )
    data = codec.encode(module.Lazy(1), "client")
    vars(module).pop("Lazy")
    with pytest.raises(DecodingError):
        codec.decode(data, module.Base, trusted=False)
    assert "Lazy" not in module.woken


@pytest.mark.parametrize("general", [pydantic.BaseModel, msgspec.Struct, enum.Enum, tuple, object])
def test_a_base_of_everything_allows_nothing(general: type, codec: Codec) -> None:
    for value in (Model(a=1), Struct(1), Colour.RED, Row(1), Item("a")):
        with pytest.raises(DecodingError):
            send(codec, value, general)


def test_registered_classes_are_built(codec: Codec) -> None:
    assert codec.register(Item) is Item
    assert send(codec, [Item("a")]) == [Item("a")]
    with pytest.raises(DecodingError):
        send(codec, [Item("a"), Point(1)])


def test_a_module_is_never_imported(codec: Codec, deploy: Deploy) -> None:
    module = deploy("bomb", "@dataclass\nclass M:\n    a: int\n")
    data = codec.encode(module.M(1), "client")
    del sys.modules["bomb"]
    with pytest.raises(DecodingError):
        codec.decode(data, trusted=False)
    with pytest.raises(DecodingError):
        codec.decode(data, Item, trusted=False)
    assert "bomb" not in sys.modules


def test_a_model_from_outside_is_validated(codec: Codec) -> None:
    forged = Model.model_construct(a="not an int")
    with pytest.raises(DecodingError, match="valid integer"):
        send(codec, forged, Model)
    assert codec.decode(codec.encode(forged, "journal")).a == "not an int"
    assert send(codec, CountingModel(n=1), CountingModel).n == 3


def test_a_validated_model_keeps_what_its_sender_set(codec: Codec) -> None:
    value = PrivateModel(a=1)
    value._secret = 9
    assert send(codec, value, PrivateModel) == value
    assert send(codec, Model(a=1), Model).model_fields_set == {"a"}
    assert send(codec, AliasModel(someName=1), AliasModel) == AliasModel(someName=1)
    assert send(codec, Swapped(b=1, a=2), Swapped) == Swapped(b=1, a=2)
    assert send(codec, Names(["a"]), Names) == Names(["a"])
    extra = OpenModel.model_validate({"a": 1, "b": 2})
    assert send(codec, extra, OpenModel) == extra


def test_a_method_cannot_be_replaced_from_outside(codec: Codec, deploy: Deploy) -> None:
    module = deploy(
        "app",
        "@dataclass\nclass M:\n    a: int\n    def check(self): return False\n",
    )
    forged = module.M(1)
    forged.check = "data"
    with pytest.raises(DecodingError, match="may not set 'check'"):
        send(codec, forged, module.M)


@pytest.mark.parametrize("trusted", [True, False])
def test_a_text_is_never_given_to_just_any_callable(codec: Codec, trusted: bool) -> None:
    for module, name in (("posix", "system"), ("ipaddress", "ip_address"), ("pydantic", "Url")):
        payload = msgspec.msgpack.encode([module, name, "false"])
        data = msgspec.msgpack.encode(msgspec.msgpack.Ext(26, payload))
        with pytest.raises(DecodingError, match="unknown kind of text"):
            codec.decode(data, trusted=trusted)


def test_a_factory_from_outside_is_one_of_a_few_types(codec: Codec) -> None:
    data = msgspec.msgpack.encode(msgspec.msgpack.Ext(21, msgspec.msgpack.encode(["eval", []])))
    with pytest.raises(DecodingError):
        codec.decode(data, trusted=False)
