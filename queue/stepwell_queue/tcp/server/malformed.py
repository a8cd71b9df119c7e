"""A frame in which something cannot be read: what can be is dealt with, the rest is refused."""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec

from stepwell_queue.errors import MalformedRequest
from stepwell_queue.tcp.protocol import NOTE, Request

_pairs: Final = msgspec.msgpack.Decoder(list[tuple[int, msgspec.Raw]]).decode
_request: Final[Any] = msgspec.msgpack.Decoder(Request).decode
_tagged: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_tag: Final = msgspec.msgpack.Decoder(int).decode
_NAMES: Final[dict[object, str]] = {
    kind.__struct_config__.tag: kind.__name__ for kind in get_args(Request)
}


def one_by_one(body: memoryview) -> list[tuple[int, object]]:
    """Return the requests of a frame; of one that cannot be read, what it is refused with.

    Raises DecodeError, RecursionError where nobody could be told so: there is no number.
    """
    requests: list[tuple[int, object]] = []
    for number, raw in _pairs(body):
        try:
            requests.append((number, _request(raw)))
        except msgspec.DecodeError as error:
            if number == NOTE:
                raise
            requests.append((number, _refused(raw, error)))
    return requests


def _refused(raw: msgspec.Raw, error: msgspec.DecodeError) -> MalformedRequest:
    return MalformedRequest(
        f"{_name(raw)} could not be read by the server ({error}) and was refused; nothing was "
        "changed. If the client is newer than the server, bring both to one release; else one of "
        "its values is of a wrong type"
    )


def _name(raw: msgspec.Raw) -> str:
    try:
        tag = _tag(_tagged(raw)[0])
    except (msgspec.DecodeError, IndexError):
        return "a request"
    return _NAMES.get(tag, f"a request with the tag {tag}, which this server does not know,")
