"""The work of one process: `python -m bench.sample PART SPEC FOLDER`; prints one JSON object.

measure, reconcile and floor are processes of their own, so that what is reconciled is what a new
process finds on the disk, and no part is measured in a process that another part has grown.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path
from typing import Final

import msgspec

from bench.answer import UNRECONCILED, answer_stream
from bench.floor import measure_floor
from bench.load import measure
from bench.reconcile import reconcile
from bench.setups import setup_of
from bench.spec import Floor, Measured, Spec, Unreconciled
from stepwell_runtime.tuning import worker_process

WARM_UP: Final = 256
"""Executions that every measuring process discards first, in a file of their own."""


async def measure_part(spec: Spec, folder: Path) -> Measured:
    warm_up = msgspec.structs.replace(
        spec,
        executions=min(spec.executions, WARM_UP),
        pending=min(spec.pending, max(WARM_UP, spec.concurrency)),
        loop_load=0.0,
    )
    async with setup_of(spec) as setup:
        await measure(warm_up, folder / "warm-up.db", setup)
        gc.collect()
        with worker_process():  # as `await app.worker().run()` does
            return await measure(spec, folder / "sample.db", setup)


async def reconcile_part(spec: Spec, folder: Path, measured: Measured) -> list[float]:
    return await reconcile(spec, folder / "sample.db", measured)


async def floor_part(spec: Spec, folder: Path, measured: Measured) -> Floor:
    return await measure_floor(spec, folder / "sample.db", folder / "floor.db", measured)


async def run_part(part: str, spec: Spec, folder: Path) -> object:
    kept = folder / "measured.json"
    if part == "measure":
        found = await measure_part(spec, folder)
        kept.write_bytes(msgspec.json.encode(found))
        return found
    measured = msgspec.json.decode(kept.read_bytes(), type=Measured)
    if part == "reconcile":
        return await reconcile_part(spec, folder, measured)
    return await floor_part(spec, folder, measured)


def main(part: str, spec_json: str, folder: str) -> int:
    spec = msgspec.json.decode(spec_json, type=Spec)
    stream = answer_stream()
    try:
        answer = asyncio.run(run_part(part, spec, Path(folder)))
    except Unreconciled as error:
        print(error, file=sys.stderr)
        return UNRECONCILED
    with stream:
        stream.write(msgspec.json.encode(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
