"""What is going on while a store is closed, or when nobody closes it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell_queue import StoreUnavailable
from tests.store.kit import Bench, open_bench

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


async def test_what_is_read_while_the_store_closes_is_answered_or_refused(path: Path) -> None:
    async def read_on(bench: Bench) -> None:
        while True:
            await bench.store.history("run")
            await bench.store.workers()

    bench = await open_bench(path)
    await bench.start("run")
    await bench.store.close()
    for turns in range(20):
        bench = await open_bench(path)
        readers = [asyncio.create_task(read_on(bench)) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await bench.store.close()
        outcomes = await asyncio.gather(*readers, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3


@pytest.mark.blocking
async def test_a_program_that_does_not_close_its_store_can_end(path: Path) -> None:
    program = f"""
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests.store.kit import open_bench
kept = []
async def main():
    bench = await open_bench(Path(sys.argv[1]))
    kept.append(bench)  # not freed, which would close it
    await bench.claimed(await bench.session(), "run")
asyncio.run(main())
"""
    command = [sys.executable, "-I", "-c", program, str(path)]
    result = subprocess.run(command, check=False, timeout=60, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    bench = await open_bench(path)
    again = await bench.claim_one(await bench.session())
    assert (again.id, again.crashes) == ("run", 1)
    await bench.store.close()
