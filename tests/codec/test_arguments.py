"""The arguments of a call, as they are stored: each value on its own."""

from __future__ import annotations

import inspect

import pytest

from stepwell_runtime.codec import Codec, DecodingError, SerializationError
from stepwell_runtime.definitions import TaskDefinition
from stepwell_runtime.launch import decode_each, encode_digested, encode_each
from tests.codec.conftest import Deploy


def definition(**types: object) -> TaskDefinition:
    def fn(first: object, *rest: object, word: object = None) -> None: ...

    return TaskDefinition(fn, "work", signature=inspect.signature(fn), types=(types, None))


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("args", [(), (1,), ({"id": 1},), ("a", [2.5], None)])
@pytest.mark.parametrize("kwargs", [{}, {"word": b"x"}, {"word": 2**70, "other": (1, 2)}])
def test_they_come_back(
    codec: Codec, args: tuple[object, ...], kwargs: dict[str, object], trusted: bool
) -> None:
    stored = encode_each(codec, definition(), args, kwargs)
    assert decode_each(codec, definition(), stored, trusted=trusted) == (list(args), kwargs)


def test_a_class_that_moved_is_found_by_the_annotation(codec: Codec, deploy: Deploy) -> None:
    source = "@dataclass\nclass M:\n    a: int\n"
    value = deploy("app", source).M(1)
    stored = encode_each(codec, definition(), (value, value), {"word": value})
    deploy("app", None)
    moved = deploy("elsewhere", source).M
    typed = definition(first=moved, rest=moved, word=moved)
    back = decode_each(codec, typed, stored, trusted=True)
    assert back == ([moved(1), moved(1)], {"word": moved(1)})


def test_what_cannot_be_decoded_names_the_task(codec: Codec, deploy: Deploy) -> None:
    stored = encode_each(codec, definition(), (deploy("app", "class M(enum.Enum): A = 1").M.A,), {})
    deploy("app", None)
    with pytest.raises(DecodingError, match="^the arguments of task 'work'"):
        decode_each(codec, definition(), stored, trusted=True)


def test_what_cannot_be_encoded_names_the_task(codec: Codec) -> None:
    for args, kwargs in (((object(),), {}), ((1, object()), {}), ((1,), {"word": object()})):
        with pytest.raises(SerializationError, match="^the arguments of task 'work'"):
            encode_each(codec, definition(), args, kwargs)


def test_the_digest_tells_other_arguments_apart(codec: Codec) -> None:
    calls: list[tuple[tuple[object, ...], dict[str, object]]] = [
        ((), {}),
        ((1,), {}),
        ((2,), {}),
        ((1, 2), {}),
        ((2, 1), {}),
        ((1,), {"word": 2}),
        ((1,), {"other": 2}),
    ]
    digests = {encode_digested(codec, definition(), *call)[1] for call in calls}
    assert len(digests) == len(calls)
    assert encode_digested(codec, definition(), (), {})[1] == 0


def test_an_untrusted_class_is_not_built(codec: Codec, deploy: Deploy) -> None:
    value = deploy("app", "@dataclass\nclass M:\n    a: int\n").M(1)
    stored = encode_each(codec, definition(), (value,), {})
    with pytest.raises(DecodingError, match="from a client"):
        decode_each(codec, definition(), stored, trusted=False)


def test_reading_is_decoding_without_its_care(codec: Codec, deploy: Deploy) -> None:
    module = deploy("app", "@dataclass\nclass M:\n    a: int\n")
    data = codec.encode([module.M(1), 2**70], "here")
    assert codec.read(data) == codec.decode(data) == [module.M(1), 2**70]
    renamed = deploy("app", "@dataclass\nclass New:\n    a: int\n")
    codec.register(renamed.New, formerly=("app:M",))
    assert codec.read(data) == [renamed.New(1), 2**70]
