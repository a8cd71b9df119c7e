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
from typing import Any, BinaryIO, Literal

import msgspec

from stepwell_queue.errors import StepwellError
from stepwell_runtime.codec import Codec
from stepwell_runtime.scope import JobScope, current

BEGUN = b""
"""The first answer to each request: its function is found and begins."""

_MAIN = "__mp_main__"  # as the children of multiprocessing call it
_importing = False


class Request(msgspec.Struct, array_like=True):
    """One execution: a function by its names, and what its scope says."""

    module: str
    qualname: str
    script: str | None  # the file of `__main__`, if that is where it is and no module
    arguments: bytes
    most: int  # bytes of one encoded value
    kind: Literal["task", "step"]
    name: str
    run_id: str
    path: str
    queue: str
    attempt: int
    seed: str


class Answer(msgspec.Struct, array_like=True):
    """What became of it: an encoded result or exception."""

    failed: bool
    value: bytes


LENGTH = 8
encode = msgspec.msgpack.Encoder().encode
read_request = msgspec.msgpack.Decoder(Request).decode
read_answer = msgspec.msgpack.Decoder(Answer).decode


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(LENGTH, "big") + data


def refuse_while_importing() -> None:
    """Raise in a child that imports a program, for a function of it, which begins its work anew."""
    if _importing:
        raise StepwellError(
            "a child process imports this program to execute a function of it: put what the "
            "program does by itself under `if __name__ == '__main__':`"
        )


def serve() -> None:
    """Execute what is asked for until the worker kills this process, or is no more."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what a function prints must not get between the answers
    asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, asked), daemon=True).start()

    def say(data: bytes) -> None:
        answers.write(framed(data))
        answers.flush()

    while True:
        say(encode(_answer(read_request(asked.get()), say)))


def _listen(requests: BinaryIO, asked: queue.SimpleQueue[bytes]) -> None:
    """Receive requests; once there can be none, end all that was begun here."""
    while len(head := requests.read(LENGTH)) == LENGTH:
        asked.put(requests.read(int.from_bytes(head, "big")))
    # The worker is dead. Another one will execute this again, so it must not go on.
    os.killpg(0, signal.SIGKILL)


def _answer(request: Request, say: Callable[[bytes], None]) -> Answer:
    global _importing
    codec = Codec(request.most)
    what = f"{request.kind} {request.name!r}"
    try:
        _importing = True
        try:
            fn = _function(request)
            args, kwargs = codec.decode(request.arguments)
        finally:
            _importing = False
        scope = JobScope(
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
        )
        current.set(scope)
        say(BEGUN)
        value = fn(*args, **kwargs)
        return Answer(False, codec.encode(value, f"the result of {what}"))
    except BaseException as error:  # noqa: BLE001 - SystemExit too is the failure of the function
        return Answer(True, codec.encode_error(error, what))


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
