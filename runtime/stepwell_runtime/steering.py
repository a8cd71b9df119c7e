"""Runs that are ended, and paused, from outside."""

from __future__ import annotations

from stepwell_queue.clock import Clock, Ids
from stepwell_queue.contract import PauseName, ResumeName, Status, Store, Terminate
from stepwell_queue.errors import RunEnded
from stepwell_runtime.codec import Codec


def reason_of(codec: Codec, value: bytes) -> str:
    """Return the reason for which a run was cancelled or terminated; "" = none was given."""
    reason = codec.to_json(value) if value else ""
    return reason if isinstance(reason, str) else ""


class Steering:
    """What people do to runs beside what `Engine.ask` asks of them."""

    def __init__(self, store: Store, codec: Codec, clock: Clock, ids: Ids) -> None:
        self._store, self._codec, self._clock, self._ids = store, codec, clock, ids

    async def terminate(self, id: str, *, actor: str, reason: str) -> Status:
        """End a run at once, with what it waits for. Raises RunNotFound, RunEnded."""
        value = self._codec.encode(reason, "the reason of a terminate") if reason else b""
        verb = Terminate(id, self._ids.run_id(), value, self._clock.now(), actor, reason)
        while True:
            answer = await self._store.do(verb)
            if answer.status != Status.TERMINATED:
                raise RunEnded(id, Status(answer.status).name.lower(), "terminate")
            if not answer.more:
                return Status.TERMINATED

    async def pause_name(self, name: str, *, actor: str, reason: str) -> None:
        """Have no run of this name claimed any more."""
        await self._store.do(PauseName(name, self._ids.run_id(), self._clock.now(), actor, reason))

    async def resume_name(self, name: str, *, actor: str, reason: str) -> None:
        """Take that back."""
        verb = ResumeName(name, self._ids.run_id(), self._clock.now(), actor, reason)
        await self._store.do(verb)
