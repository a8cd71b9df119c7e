"""Child processes that execute plain functions; the death of one fails only what it executed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import anyio

from stepwell_runtime.child import (
    LENGTH,
    Answer,
    Begun,
    Emitted,
    Line,
    Progress,
    Request,
    encode,
    framed,
    read_said,
)
from stepwell_runtime.codec import Codec
from stepwell_runtime.errors import ChildDied
from stepwell_runtime.scope import JobScope

_MAINS = ("__main__", "__mp_main__")


Heard = Callable[[Begun | Progress | Line | Emitted], None]


class Processes:
    """At most `most` children at once (None: one for each CPU), made when they are needed."""

    def __init__(self, most: int | None, codec: Codec) -> None:
        self._places = anyio.CapacityLimiter(most or os.cpu_count() or 1)
        self._codec = codec
        self._idle: list[_Child] = []
        self._alive: set[_Child] = set()

    async def run(
        self,
        scope: JobScope,
        fn: Callable[..., Any],
        begun: Callable[[], None],
        *,
        batch: bool = False,
    ) -> object:
        """Execute a function and return its result, or raise its exception or ChildDied.

        `begun` is called when it begins. `batch`: it takes a list of items, each a value of its
        own, and may return a list with exceptions in it. Cancelled, it kills the child.
        """
        what = f"{scope.kind} {scope.name!r} (run {scope.run_id!r})"
        request = encode(self._request(scope, fn, what, batch))

        def heard(said: Begun | Progress | Line | Emitted) -> None:
            if isinstance(said, Begun):
                begun()
            elif (voice := scope._voice()) is None:
                return  # it is over: what is still said does not count
            elif isinstance(said, Progress):
                voice.progress(said.fraction, said.note)
            elif isinstance(said, Emitted):
                # what the child cannot know, that others have emitted as much as may be, is no
                # reason to lose it: it has an allowance of its own
                voice.encoded(said.stream, said.value, scope.path, scope.attempt)
            else:
                voice.line(said.text, said.fields, scope.path, scope.attempt)

        async with self._places:
            answer = await self._ask(request, what, heard)
        if answer.items is not None:
            return [self._outcome(item, what) for item in answer.items]
        if answer.failed:
            raise self._error(answer.value)
        return self._outcome(answer, what)

    def _outcome(self, answer: Answer, what: str) -> object:
        if answer.failed:
            return self._error(answer.value)
        return self._codec.decode(answer.value, where=f"the result of {what}")

    async def _ask(self, request: bytes, what: str, heard: Heard) -> Answer:
        while True:
            child = self._idle.pop() if self._idle else await self._spawned()
            try:
                answer = await child.ask(request, heard)
            except (OSError, asyncio.IncompleteReadError):
                code = await self._end(child)
                if child.begun or not child.answered:
                    raise ChildDied(what, code) from None
                # It had died since its last answer, which is no failure of this function.
            except BaseException:
                await self._end(child)
                raise
            else:
                self._idle.append(child)
                return answer

    async def _spawned(self) -> _Child:
        child = await spawn()
        self._alive.add(child)
        return child

    async def _end(self, child: _Child) -> int:
        child.kill()
        code = await child.process.wait()
        self._alive.discard(child)
        return code

    async def close(self) -> None:
        """Kill all children, whatever they do, and wait for their ends."""
        self._idle.clear()
        for child in list(self._alive):
            await self._end(child)

    def _request(self, scope: JobScope, fn: Callable[..., Any], what: str, batch: bool) -> Request:
        args, items, its_arguments = scope._args, None, f"the arguments of {what}"
        if batch:
            items = [self._codec.encode(item, its_arguments) for item in args[0]]
            args = []
        module, script = fn.__module__, None
        if module in _MAINS:
            main = sys.modules["__main__"]
            if main.__spec__ is None:
                script = main.__file__
            else:  # python -m
                module = main.__spec__.name
        return Request(
            module,
            fn.__qualname__,
            script,
            self._codec.encode([args, scope._kwargs], its_arguments),
            items,
            self._codec.max_size,
            scope.kind,
            scope.name,
            scope.run_id,
            scope.path,
            scope.queue,
            scope.attempt,
            scope._seed,
            scope._scheduled(),
        )

    def _error(self, data: bytes) -> BaseException:
        error = self._codec.decode_error(data)
        frames = self._codec.error_info(data).frames
        if frames:  # they do not come along with it
            lines = [f"  {file}:{line} in {function}" for file, line, function in frames]
            error.add_note("\n".join(["in a child process, at", *lines]))
        return error


class _Child:
    """A process that serves one request after another."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._requests, self._answers = process, process.stdin, process.stdout
        self.answered = False  # ever
        self.begun = False  # with what it was asked last

    async def ask(self, request: bytes, heard: Heard) -> Answer:
        """Return the answer; raises OSError or IncompleteReadError when the process ends."""
        self.begun = False
        self._requests.write(framed(request))
        await self._requests.drain()
        while True:
            length = int.from_bytes(await self._answers.readexactly(LENGTH), "big")
            said = read_said(await self._answers.readexactly(length))
            if isinstance(said, Answer):
                self.answered = True
                return said
            self.begun = True
            heard(said)

    def kill(self) -> None:
        """Kill it, and what its function has started."""
        self._requests.close()
        if self.process.returncode is None:  # else its number may be another's by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


async def spawn() -> _Child:
    """Start a child, which finds modules where this process does."""
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; sys.argv[:] = {sys.argv!r}; "
        "from stepwell_runtime.child import serve; serve()"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        # A group of its own: Ctrl+C is for the worker, which lets what runs come to its end, and
        # whatever a function has started is killed along with it.
        process_group=0,
    )
    return _Child(process)
