"""What cannot come back as it was is refused at once: naming step, path, type and remedy."""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import io
import socket
import threading
import time
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from stepwell_runtime.codec import Codec, PayloadTooLarge, SerializationError
from tests.codec.conftest import Deploy
from tests.codec.kinds import (
    Computed,
    DictData,
    GenericModel,
    Item,
    Model,
    MyDict,
    MyInt,
    MyList,
    MyStr,
    MyTuple,
    Order,
    Plain,
    PrivateModel,
    Struct,
)


class OwnZone(dt.tzinfo):
    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(hours=1)

    def dst(self, when: dt.datetime | None) -> None: ...

    def tzname(self, when: dt.datetime | None) -> str:
        return "own"


class Stamp(dt.datetime):
    pass


def a_function() -> None: ...


def a_generator() -> Any:
    yield 1


async def a_coroutine() -> None: ...


@dataclass
class Opaque:
    a: int
    handle: Any = None


def _local() -> object:
    @dataclass
    class Local:
        a: int

    return Local(1)


def _local_enum() -> object:
    import enum

    made: Any = enum.Enum("Local", "A B")  # type: ignore[misc]  # no name of a class is bound
    return made["A"]


def _private_lock() -> object:
    value = PrivateModel(a=1)
    value._secret = threading.Lock()  # type: ignore[assignment]  # what users do
    return value


def _counter_with_attribute() -> object:
    value = collections.Counter("a")
    value.note = "lost"  # type: ignore[attr-defined]  # what users do
    return value


def _bad_fold_zone() -> object:
    return dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo.no_cache("Europe/Rome"))


REFUSED: list[tuple[Any, str, str]] = [
    (threading.Lock(), "lock", "inside the step"),
    (io.StringIO(), "StringIO", "inside the step"),
    (object(), "object", "dataclass"),
    (Plain(), "Plain", "dataclass"),
    (lambda: None, "function", "a function cannot be stored"),
    (a_function, "function", "a function cannot be stored"),
    (len, "builtin_function_or_method", "cannot be stored"),
    (Item, "type", "a class cannot be stored"),
    (a_generator(), "generator", "a list of its values"),
    (io, "module", "a module cannot be stored"),
    (memoryview(b"x"), "memoryview", "bytes(view)"),
    (MyStr("x"), "MyStr", "a plain str"),
    (MyInt(1), "MyInt", "a plain int"),
    (MyDict(a=1), "MyDict", "a plain dict"),
    (MyList([1]), "MyList", "a plain list"),
    (MyTuple((1,)), "MyTuple", "a plain tuple"),
    (DictData(1), "DictData", "dict"),
    (Stamp(2026, 1, 1), "Stamp", "a plain datetime"),
    (dt.datetime(2026, 1, 1, tzinfo=OwnZone()), "OwnZone", "ZoneInfo"),
    (_bad_fold_zone(), "ZoneInfo", "ZoneInfo(key)"),
    (collections.defaultdict(lambda: 1), "defaultdict", "dict(value)"),
    (ValueError("x"), "ValueError", "raise it"),
    (_local(), "Local", "module level"),
    (_local_enum(), "Local", "under its own name"),
    (GenericModel[str](content="x"), "GenericModel[str]", "class Name(GenericModel[str])"),
    ({}.keys(), "dict_keys", "cannot be stored"),
    (pydantic.SecretStr("x"), "SecretStr", "plain text"),
    (_private_lock(), "lock", "inside the step"),
    (_counter_with_attribute(), "Counter", "'note'"),
    (time.gmtime(0), "struct_time", "a plain tuple"),
]

every_refused = pytest.mark.parametrize(
    ("value", "type_name", "remedy"), REFUSED, ids=[name for _, name, _ in REFUSED]
)


@every_refused
def test_refused_at_once_with_type_and_remedy(
    value: Any, type_name: str, remedy: str, codec: Codec
) -> None:
    with pytest.raises(SerializationError) as caught:
        codec.encode(value, "step 'charge'")
    assert caught.value.where == "step 'charge'"
    assert type_name in caught.value.type_name
    assert "step 'charge'" in str(caught.value)
    assert remedy in str(caught.value)


@every_refused
def test_refused_by_the_digest_too(value: Any, type_name: str, remedy: str, codec: Codec) -> None:
    with pytest.raises(
        SerializationError,
        match=r"cannot|build|convert|raise|derives|stored|lost|module level|name",
    ):
        codec.digest(value)


LOCK = threading.Lock()


PATHS: list[tuple[Any, str]] = [
    (LOCK, ""),
    ([1, LOCK], "[1]"),
    ((0, [LOCK]), "[1][0]"),
    ({"items": [0, 1, 2, Opaque(1, LOCK)]}, "['items'][3].handle"),
    ({"a": {"b": {"c": LOCK}}}, "['a']['b']['c']"),
    ({1: LOCK}, "[1]"),
    ({1: {"x": [LOCK]}}, "[1]['x'][0]"),
    ({LOCK}, "<element>"),
    (collections.deque([1, LOCK]), "[1]"),
    (collections.OrderedDict(a=LOCK), "['a']"),
    (Order(1, by_name={"x": LOCK}), ".by_name['x']"),
    (Struct(1, b=(LOCK,)), ".b[0]"),
    (Model(a=1, anything={"z": [LOCK]}), ".anything['z'][0]"),
    ([Opaque(1, handle=Opaque(2, handle={"k": LOCK}))], "[0].handle.handle['k']"),
]


@pytest.mark.parametrize(
    ("value", "path"),
    PATHS,
)
def test_the_path_leads_to_what_is_refused(value: Any, path: str, codec: Codec) -> None:
    with pytest.raises(SerializationError) as caught:
        codec.encode(value, "here")
    assert caught.value.path == path
    assert caught.value.type_name.endswith("lock")


def test_a_key_that_is_refused_is_named_as_key(codec: Codec) -> None:
    with pytest.raises(SerializationError) as caught:
        codec.encode([{(1, LOCK): 1}], "here")
    assert caught.value.path.startswith("[0]<key (1, ")
    assert caught.value.path.endswith(">[1]")


def test_a_socket_and_a_coroutine_are_refused(codec: Codec) -> None:
    with socket.socket() as sock, pytest.raises(SerializationError, match="inside the step"):
        codec.encode(sock, "here")
    coroutine = a_coroutine()
    with pytest.raises(SerializationError, match="await it"):
        codec.encode(coroutine, "here")
    coroutine.close()
    loop = asyncio.new_event_loop()
    with pytest.raises(SerializationError, match="cannot be stored"):
        codec.encode(loop, "here")
    loop.close()


def _cycles() -> list[Any]:
    of_list: list[Any] = []
    of_list.append(of_list)
    of_dict: dict[str, Any] = {}
    of_dict["me"] = of_dict
    data = Opaque(1)
    data.handle = [data]
    struct = Struct(1)
    struct.b = struct
    model = Model(a=1)
    model.anything = (model,)
    by_key: dict[Any, Any] = {1: None}
    by_key[1] = by_key
    pair: tuple[Any, ...] = ([],)
    pair[0].append(pair)
    deque: collections.deque[Any] = collections.deque()
    deque.append(deque)
    return [of_list, of_dict, data, struct, model, by_key, pair, deque]


@pytest.mark.parametrize("value", _cycles(), ids=lambda value: type(value).__name__)
def test_a_value_that_contains_itself_is_refused(value: Any, codec: Codec) -> None:
    with pytest.raises(SerializationError, match="contains itself"):
        codec.encode(value, "here")


def _nest(wrap: Any, depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPPERS: list[Callable[[Any], Any]] = [
    lambda value: [value],
    lambda value: {"k": value},
    lambda value: {1: value},
    lambda value: (value,),
    lambda value: collections.deque([value]),
    lambda value: Opaque(1, value),
    lambda value: Struct(1, value),
    lambda value: Model.model_construct(a=1, anything=value),
    lambda value: frozenset({value}),
]


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_absurd_depth_is_refused_and_moderate_depth_works(wrap: Any, codec: Codec) -> None:
    moderate = _nest(wrap, 90)
    assert codec.decode(codec.encode(moderate, "here")) == moderate
    with pytest.raises(SerializationError, match="deeper than"):
        codec.encode(_nest(wrap, 300), "here")


def test_a_path_that_is_absurdly_long_is_shortened(codec: Codec) -> None:
    with pytest.raises(SerializationError) as caught:
        codec.encode(_nest(WRAPPERS[0], 5000), "here")
    assert len(caught.value.path) < 250


@pytest.mark.parametrize("empty", [[], ()], ids=["list", "tuple"])
def test_shared_parts_that_multiply_are_refused_without_building_them(empty: Any) -> None:
    codec = Codec(max_size=10_000)
    value: Any = empty
    for _ in range(60):
        value = type(empty)((value, value))
    begun = time.monotonic()
    with pytest.raises(PayloadTooLarge, match="10,000 bytes"):
        codec.encode(value, "here")
    assert time.monotonic() - begun < 5


def test_a_field_that_was_never_set_is_refused(codec: Codec) -> None:
    value = Computed(1)
    del value.a
    with pytest.raises(SerializationError, match="'a' is not set"):
        codec.encode(value, "here")
    struct = Struct(1)
    del struct.b
    with pytest.raises(SerializationError, match="not set"):
        codec.encode(struct, "here")


def test_a_field_that_raises_while_it_is_read_is_refused(codec: Codec, deploy: Deploy) -> None:
    module = deploy(
        "app",
        "class Angry:\n"
        "    def __get__(self, obj, owner): return 0 if obj is None else 1 / 0\n"
        "    def __set__(self, obj, value): pass\n"
        "@dataclass\nclass M:\n    a: int = Angry()\n",
    )
    with pytest.raises(SerializationError, match="ZeroDivisionError: division by zero"):
        codec.encode(module.M(1), "here")


def test_an_instance_of_a_class_that_was_replaced_is_refused(deploy: Deploy, codec: Codec) -> None:
    source = "@dataclass\nclass Cell:\n    a: int\n"
    old = deploy("cells", source).Cell(1)
    assert codec.decode(codec.encode(old, "here")) == old
    new = deploy("cells", source).Cell(1)
    with pytest.raises(SerializationError, match="redefined"):
        codec.encode(old, "here")
    assert codec.decode(codec.encode(new, "here")) == new


def test_a_refused_value_leaves_the_codec_usable(codec: Codec) -> None:
    for _ in range(3):
        with pytest.raises(SerializationError):
            codec.encode({"a": [object()]}, "here")
    assert codec.decode(codec.encode({"a": [1]}, "here")) == {"a": [1]}


def test_msgspec_raw_is_refused(codec: Codec) -> None:
    with pytest.raises(SerializationError):
        codec.encode(msgspec.Raw(b"\x01"), "here")
    with pytest.raises(SerializationError):
        codec.encode(msgspec.msgpack.Ext(1, b""), "here")


class TestSize:
    def test_a_value_over_the_limit_is_refused_with_size_limit_and_advice(self) -> None:
        codec = Codec(max_size=1000)
        with pytest.raises(PayloadTooLarge) as caught:
            codec.encode({"blob": b"x" * 2000}, "step 'load'")
        assert caught.value.limit == 1000
        assert caught.value.size is not None
        assert caught.value.size > 2000
        for part in ("step 'load'", "1,000 bytes", "outside"):
            assert part in str(caught.value)

    def test_exactly_the_limit_is_let_through(self) -> None:
        data = Codec().encode("x" * 500, "here")
        assert Codec(max_size=len(data)).encode("x" * 500, "here") == data
        with pytest.raises(PayloadTooLarge):
            Codec(max_size=len(data) - 1).encode("x" * 500, "here")

    def test_the_default_limit_is_4_mib(self, codec: Codec) -> None:
        assert codec.max_size == 4 * 1024 * 1024
        with pytest.raises(PayloadTooLarge, match="4,194,304"):
            codec.encode(b"x" * (50 * 1024 * 1024), "signal 'blob'")
        assert codec.encode(b"x" * (4 * 1024 * 1024 - 100), "here")

    def test_a_limit_that_is_none_is_refused(self) -> None:
        for limit in (0, -1):
            with pytest.raises(ValueError, match="max_size"):
                Codec(max_size=limit)

    def test_a_large_list_is_refused_by_size(self) -> None:
        with pytest.raises(PayloadTooLarge):
            Codec(max_size=1000).encode([(i,) for i in range(2000)], "here")
