"""Frames are found in a stream, however it is cut into pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell_queue.tcp.frames import Frames, FrameTooLong
from stepwell_queue.tcp.protocol import decode_keys, encode, framed, length_of

bodies = st.lists(st.binary(max_size=300), max_size=12)


def parts(stream: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(at)]


def feed_all(frames: Frames, pieces: list[bytes]) -> None:
    for piece in pieces:
        if piece:
            frames.feed(piece)


@given(bodies, st.lists(st.integers(0, 10_000), max_size=30))
def test_any_pieces_give_the_same_frames(sent: list[bytes], cuts: list[int]) -> None:
    got: list[bytes] = []
    frames = Frames(300, lambda body: got.append(bytes(body)))
    feed_all(frames, parts(b"".join(map(framed, sent)), cuts))
    assert got == sent
    assert not frames.started


@given(bodies)
def test_single_bytes_give_the_same_frames_each_as_soon_as_it_is_whole(sent: list[bytes]) -> None:
    got: list[bytes] = []
    frames = Frames(300, lambda body: got.append(bytes(body)))
    for number, body in enumerate(sent):
        for byte in framed(body):
            assert len(got) == number
            frames.feed(bytes([byte]))
        assert got[-1] == body


@given(bodies, st.integers(301, 2**32 - 1), st.lists(st.integers(0, 10_000), max_size=30))
def test_a_frame_over_the_limit_is_refused_and_nothing_of_it_kept(
    sent: list[bytes], size: int, cuts: list[int]
) -> None:
    got: list[bytes] = []
    frames = Frames(300, lambda body: got.append(bytes(body)))
    with pytest.raises(FrameTooLong, match=f"a frame of {size} bytes"):
        feed_all(frames, parts(b"".join(map(framed, sent)) + size.to_bytes(4, "big"), cuts))
    assert got == sent
    assert frames.announced == 0


@given(st.integers(0, 70_000))
def test_the_length_of_an_array_is_read_without_decoding_it(count: int) -> None:
    assert length_of(memoryview(encode([None] * count))) == count


@given(st.binary(max_size=20))
def test_the_length_of_anything_else_is_none(body: bytes) -> None:
    length = length_of(memoryview(body))
    if length > len(body):
        with pytest.raises(ValueError, match=r".*"):
            decode_keys(body)
