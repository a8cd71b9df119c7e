"""Writes the file of a release: `python -m tests.journals.record 0.2`, in the root."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from stepwell import Run, Stepwell
from tests.journals.workflows import ENDED, LIVE, mended

FOLDER = Path(__file__).parent
_RESTING = ("parked", "held", "rolling_back")


async def _until(run: Run[Any], *statuses: str) -> None:
    async with asyncio.timeout(20):
        while (await run.status()) not in statuses:  # noqa: ASYNC110 - the store has no event for it
            await asyncio.sleep(0.005)


async def _ended(app: Stepwell) -> None:
    runs = {id: await app.start(flow("p-1"), id=id) for id, flow in ENDED.items() if id != "mended"}
    await _until(runs["cancelled"], "parked")
    await runs["cancelled"].cancel(reason="enough", actor="ann")
    mended.discard("p-1")
    held = await app.start(ENDED["mended"]("p-1"), id="mended")
    await _until(held, "held")
    await _until(runs["two goes"], "failed")
    mended.add("p-1")
    await held.retry(reason="it works now", actor="ann")
    await runs["two goes"].resume_rollback(reason="likewise", actor="ann")
    for run in (*runs.values(), held):
        await asyncio.gather(run.result(timeout=20), return_exceptions=True)
    await _until(runs["two goes"], "failed")


async def _live(app: Stepwell) -> list[str]:
    mended.discard("p-2")
    for id, flow in LIVE.items():
        await _until(await app.start(flow("p-2"), id=id), *_RESTING)
    return list(LIVE)


async def main(version: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        app = Stepwell(Path(folder) / "runs.db", include=["tests.journals.workflows"])
        async with app:
            async with app.worker(queues=["default", "depot"]):
                await _ended(app)
                live = await _live(app)
            # The worker is gone, so the live ones stay as they are while they are read.
            lines = [line async for line in app.export_runs(*ENDED, *live)]
    (FOLDER / f"{version}.jsonl").write_bytes(b"".join(lines))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
