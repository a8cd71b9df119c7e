"""Writes the file of a release: `python -m tests.journals.record 0.2`, in the root."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from stepwell import AskRefused, Run, Stepwell
from stepwell_queue.contract import Status
from tests.journals.workflows import (
    ENDED,
    LIVE,
    PARCEL,
    RUNNING,
    UNCLAIMED,
    approve,
    astray,
    found,
    held_up,
    later,
    mended,
)

FOLDER = Path(__file__).parent
_RESTING = ("parked", "held", "rolling_back")
_STEERED = ("mended", "rolled back", "expired", "half undone")
"""Of those that end, the ones that more is done to than to start them."""


async def _until(run: Run[Any], *statuses: str) -> None:
    async with asyncio.timeout(20):
        while (await run.status()) not in statuses:  # noqa: ASYNC110 - the store has no event for it
            await asyncio.sleep(0.005)


async def _until_told(app: Stepwell, id: str) -> None:
    """Wait until a run has taken what it was told, and rests."""
    async with asyncio.timeout(20):
        while not await _rests(app, id):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.005)


async def _rests(app: Stepwell, id: str) -> bool:
    found = await app.engine.store.history(id)
    return found is not None and not found.inbox and found.run.status == Status.PARKED


async def _ended(app: Stepwell) -> None:
    runs = {
        id: await app.start(flow("p-1"), id=id) for id, flow in ENDED.items() if id not in _STEERED
    }
    for id in ("cancelled", "terminated"):
        await _until(runs[id], "parked")
    await runs["cancelled"].cancel(reason="enough", actor="ann")
    await runs["terminated"].terminate(reason="at once", actor="ann")
    expired = await app.start(
        ENDED["expired"]("p-1").with_options(queue="nobody", expires=0.001), id="expired"
    )
    mended.discard("p-1")
    held = await app.start(ENDED["mended"]("p-1"), id="mended")
    given_up = await app.start(ENDED["rolled back"]("p-1"), id="rolled back")
    half = await app.start(ENDED["half undone"]("p-3"), id="half undone")
    await _until(held, "held")
    await _until(given_up, "held")
    await _until(runs["two goes"], "failed")
    mended.add("p-1")
    await held.retry(reason="it works now", actor="ann")
    await given_up.roll_back(reason="it does not", actor="ann")
    await runs["two goes"].resume_rollback(reason="likewise", actor="ann")
    await _talk(runs["says"])
    for _ in range(3):
        await runs["anew"].signal(found, PARCEL)
    for run in (*runs.values(), held, given_up, expired, half):
        await asyncio.gather(run.result(timeout=20), return_exceptions=True)
    await _until(runs["two goes"], "failed")


async def _talk(run: Run[Any]) -> None:
    assert await run.ask(approve, PARCEL, timeout=20)
    try:
        await run.ask(approve, PARCEL, timeout=20)
    except AskRefused:
        return
    raise AssertionError("it answers one question")


async def _live(app: Stepwell) -> None:
    mended.discard("p-2")
    for id, flow in LIVE.items():
        await _until(await app.start(flow("p-2"), id=id), *_RESTING)
    await app.get("paused").pause(reason="wait", actor="ann")
    assert not await app.get("talks").ask(approve, PARCEL, timeout=20)
    await app.signal("anew too", found, PARCEL)
    await _until_told(app, "anew too")
    await app.signal("anew too", later, 5)  # which this go does not take
    astray.add("p-2")
    await app.signal("stuck", found, PARCEL)
    await _until(app.get("stuck"), "stuck")
    for id in ("talks", "anew too"):
        await _until_told(app, id)


async def _exported(app: Stepwell) -> list[bytes]:
    """Add those that nobody is about, or that are being executed, and export all."""
    await app.start(UNCLAIMED["ready"]("p-2"), id="ready")
    await app.start(UNCLAIMED["scheduled"]("p-2").with_options(delay=2.0), id="scheduled")
    held_up["p-2"] = asyncio.Event()
    async with app.worker(queues=["counter"]):
        [(id, flow)] = RUNNING.items()
        await _until(await app.start(flow("p-2").with_options(queue="counter"), id=id), "running")
        fork = await app.fork("well", from_step="lose", id="forked", actor="ann")
        ids = (*ENDED, *LIVE, *UNCLAIMED, *RUNNING, fork.id)
        lines = [line async for line in app.export_runs(*ids)]
        held_up.pop("p-2").set()
    return lines


async def main(version: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        app = Stepwell(Path(folder) / "runs.db", include=["tests.journals.workflows"])
        async with app:
            # Without coroutines that are kept, each go on is a replay.
            async with app.worker(queues=["default", "depot"], cache=0):
                await _ended(app)
                await _live(app)
            # The worker is gone, so the live ones stay as they are while they are read.
            lines = await _exported(app)
    (FOLDER / f"{version}.jsonl").write_bytes(b"".join(lines))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
