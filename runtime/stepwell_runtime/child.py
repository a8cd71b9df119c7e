"""What a child process does: it executes one plain function after another, as its worker asks.

A request comes in on stdin and its answer goes out on what was stdout; a function that prints does
so on stderr. Values and exceptions are encoded as they are in the store.
"""

from __future__ import annotations

import importlib
import inspect
import os
import queue
import runpy
import signal
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, BinaryIO, Literal, cast

import msgspec

from stepwell_queue.errors import StepwellError
from stepwell_runtime.codec import Codec, SerializationError
from stepwell_runtime.emissions import Allowance, encode_said
from stepwell_runtime.scope import JobScope, current

_MAIN = "__mp_main__"  # as the children of multiprocessing call it
_importing = False


class Request(msgspec.Struct, array_like=True):
    """One execution: a function by its names, and what its scope says."""

    module: str
    qualname: str
    script: str | None  # the file of `__main__`, if that is where it is and no module
    arguments: bytes
    items: list[bytes] | None  # of a batch: what its function gets as a list, instead of arguments
    most: int  # bytes of one encoded value
    kind: Literal["task", "step"]
    name: str
    run_id: str
    path: str
    queue: str
    attempt: int
    seed: str
    scheduled: float


class Begun(msgspec.Struct, array_like=True, tag=1):
    """The function of a request is found, and begins."""


class Progress(msgspec.Struct, array_like=True, tag=2):
    """What the function reported."""

    fraction: float
    note: str


class Line(msgspec.Struct, array_like=True, tag=3):
    """What the function logged."""

    text: str
    fields: str


class Emitted(msgspec.Struct, array_like=True, tag=5):
    """What the function emitted: an item, encoded."""

    stream: str
    value: bytes


class Answer(msgspec.Struct, array_like=True, tag=4):
    """What became of a request: an encoded result or exception. The last that is said of it.

    `items`: what a batch returned for each of its items, instead of a value.
    """

    failed: bool
    value: bytes
    items: list[Answer] | None = None


LENGTH = 8
encode = msgspec.msgpack.Encoder().encode
read_request = msgspec.msgpack.Decoder(Request).decode
read_said = msgspec.msgpack.Decoder(Begun | Progress | Line | Emitted | Answer).decode


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(LENGTH, "big") + data


def refuse_while_importing() -> None:
    """Raise in a child that imports a program, for a function of it, which begins its work anew."""
    if _importing:
        raise StepwellError(
            "a child process imports this program to execute a function of it: put what the "
            "program does by itself under `if __name__ == '__main__':`"
        )


class _Mouth:
    """Says what becomes of one request, and what its function says of itself, until that is over.

    Its function may have threads, which talk at the same time, and may go on when it has ended.
    """

    def __init__(self, out: BinaryIO, codec: Codec) -> None:
        self._out, self._lock, self._over = out, threading.Lock(), False
        self._codec, self._allowance = codec, Allowance()

    def say(self, what: Begun | Progress | Line | Emitted | Answer) -> None:
        with self._lock:
            if not self._over:
                self._over = isinstance(what, Answer)
                self._out.write(framed(encode(what)))
                self._out.flush()

    def progress(self, fraction: float, note: str) -> None:
        self.say(Progress(fraction, note))

    def line(self, text: str, fields: str, path: str, attempt: int) -> None:
        self.say(Line(text, fields))

    def item(self, stream: str, value: object, path: str, attempt: int) -> None:
        data = encode_said(self._codec, value, f"an item of stream {stream!r}")
        with self._lock:
            self._allowance.take(stream, len(data))
        self.say(Emitted(stream, data))

    def encoded(self, stream: str, data: bytes, path: str, attempt: int) -> None:
        self.say(Emitted(stream, data))

    def flush(self) -> None:
        return None


class _Scope(JobScope, eq=False):
    """What a function sees of its attempt here."""

    _mouth: _Mouth
    _start: float

    def _scheduled(self) -> float:
        return self._start

    def _voice(self) -> _Mouth:
        return self._mouth


def serve() -> None:
    """Execute what is asked for until the worker kills this process, or is no more."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what a function prints must not get between the answers
    asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, asked), daemon=True).start()
    while True:
        request = read_request(asked.get())
        codec = Codec(request.most)
        mouth = _Mouth(answers, codec)
        mouth.say(_answer(request, codec, mouth))


def _listen(requests: BinaryIO, asked: queue.SimpleQueue[bytes]) -> None:
    """Receive requests; once there can be none, end all that was begun here."""
    while len(head := requests.read(LENGTH)) == LENGTH:
        asked.put(requests.read(int.from_bytes(head, "big")))
    # The worker is dead. Another one will execute this again, so it must not go on.
    os.killpg(0, signal.SIGKILL)


def _answer(request: Request, codec: Codec, mouth: _Mouth) -> Answer:
    global _importing
    what = f"{request.kind} {request.name!r}"
    try:
        _importing = True
        try:
            fn = _function(request)
            args, kwargs = codec.decode(request.arguments)
            if request.items is not None:
                args = [list(map(codec.decode, request.items))]
        finally:
            _importing = False
        scope = _Scope(
            request.kind,
            request.name,
            request.run_id,
            request.path,
            request.queue,
            request.attempt,
            request.seed,
            None,
            inspect.signature(fn),
            args,
            kwargs,
            mouth,
            request.scheduled,
        )
        current.set(scope)
        mouth.say(Begun())
        value: Any = fn(*args, **kwargs)
        if request.items is not None and isinstance(value, list):
            items = cast("list[object]", value)
            return Answer(False, b"", [_item(codec, item, what) for item in items])
        return Answer(False, codec.encode(value, f"the result of {what}"))
    except BaseException as error:  # noqa: BLE001 - SystemExit too is the failure of the function
        return Answer(True, codec.encode_error(error, what))


def _item(codec: Codec, value: object, what: str) -> Answer:
    """Encode what is in the list of a batch; an exception is the failure of its item."""
    try:
        if not isinstance(value, BaseException):
            return Answer(False, codec.encode(value, f"the result of {what}"))
    except SerializationError as refused:
        value = refused
    return Answer(True, codec.encode_error(value, what))


def _function(request: Request) -> Callable[..., Any]:
    found: Any = (
        importlib.import_module(request.module)
        if request.script is None
        else _script(request.script)
    )
    for part in request.qualname.split("."):
        found = getattr(found, part)
    definition: Any = getattr(found, "definition", None)
    fn: Callable[..., Any] = found if definition is None else definition.fn
    return fn


def _script(file: str) -> ModuleType:
    """Return the file that the worker runs as `__main__`, imported as a module."""
    if _MAIN not in sys.modules:
        module = ModuleType(_MAIN)
        module.__dict__.update(runpy.run_path(file, run_name=_MAIN))
        # Under both names: so values of its classes are read here as the worker reads them.
        sys.modules[_MAIN] = sys.modules["__main__"] = module
    return sys.modules[_MAIN]
