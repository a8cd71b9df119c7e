"""Random lives under one claim, of which any end is said again."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell_queue import (
    Append,
    Finish,
    InboxRow,
    OpenOp,
    Park,
    Reschedule,
    Settle,
    Status,
    Verb,
)
from tests.store.kit import Bench, open_bench
from tests.store.test_repetition import contents

SINGLE = st.one_of(
    st.tuples(st.sampled_from(["signal", "park", "take"]), st.none()),
    st.tuples(st.sampled_from(["open", "end", "close", "child"]), st.sampled_from(["0", "1"])),
    st.tuples(st.just("record"), st.integers(1, 3)),
)
OFTEN = st.sampled_from(
    [
        [("open", "0"), ("end", "0")],
        [("open", "1"), ("open", "1"), ("record", 1), ("close", "1")],
        [("signal", None), ("park", None), ("take", None)],
        [("signal", None), ("signal", None), ("park", None), ("take", None), ("child", "0")],
    ]
)
STEPS = st.lists(st.one_of(SINGLE.map(lambda step: [step]), OFTEN), min_size=1, max_size=6)
ENDS = st.sampled_from(["none", "none", "finish", "settle", "reschedule"])


class Life:
    """What one holder of a run says, and hears."""

    def __init__(self, bench: Bench, run: int) -> None:
        self.bench, self.run = bench, run
        self.length = self.signals = self.begun = 0
        self.inbox: list[InboxRow] = []
        self.said: list[tuple[Verb[Any], Any]] = []

    async def say(self, verb: Verb[Any]) -> Any:
        answer = await self.bench.store.do(verb)
        self.said.append((verb, answer))
        return answer

    async def write(self, count: int, **more: Any) -> None:
        first, self.length = self.length, self.length + count
        records = [self.bench.record(seq, f"r{seq}") for seq in range(first, self.length)]
        await self.say(Append(self.run, 1, records, **more))

    async def change(self, **more: Any) -> None:
        await self.say(Append(self.run, 1, length=self.length, **more))

    async def step(self, what: str, detail: Any) -> bool:
        """Whether the run is still held."""
        self.begun += 1
        if what == "record":
            await self.write(detail)
        elif what == "open":
            await self.change(opened=[OpenOp(detail, "wait", "go", None, self.begun)])
        elif what == "close":
            await self.change(closed=[detail])
        elif what == "end":
            await self.write(1, closed=[detail])
        elif what == "child":
            child = self.bench.new(f"child-{self.begun}", queue="elsewhere")
            await self.change(children=[(f"c{self.begun}", child)])
        elif what == "signal":
            self.signals += 1
            await self.bench.signal("run", f"u{self.signals}")
            history = await self.bench.store.history("run")
            assert history is not None
            self.inbox = list(history.inbox)
        elif what == "take":
            taken, self.inbox = self.inbox, []
            await self.write(1, absorbed=[row.id for row in taken])
        else:
            rows = await self.say(Park(self.run, 1, None, "go", length=self.length))
            assert list(rows) == self.inbox
            return bool(rows)
        return True

    async def end(self, how: str) -> None:
        """Give up the claim, after taking what may have kept it from being parked."""
        if self.inbox and how != "none":
            await self.step("take", None)
        if how == "finish":
            now = self.bench.clock.now()
            await self.say(Finish(self.run, 1, Status.COMPLETED, b"value", now))
        elif how == "settle":
            await self.say(Settle(self.run, 1, Status.HELD, b"why"))
        elif how == "reschedule":
            await self.say(Reschedule(self.run, 1, None))

    async def say_again(self, first: int) -> None:
        for verb, answer in self.said[first:]:
            again = await self.bench.store.do(verb)
            assert bool(again) == bool(answer)  # of a Park: whether it parked


async def _live(path: Path, steps: list[tuple[str, Any]], how: str) -> None:
    bench = await open_bench(path)
    claimed = await bench.claimed(await bench.session(), "run")
    life = Life(bench, claimed.run)
    held = True
    for what, detail in steps:
        held = held and await life.step(what, detail)
    if held:
        await life.end(how)
    before = await _contents(path)
    for first in range(len(life.said)):
        await life.say_again(first)
        assert await _contents(path) == before
    assert await bench.store.doctor() == []
    await bench.store.close()


async def _contents(path: Path) -> dict[str, list[Any]]:
    tables = await contents(path)
    # an operation that is closed and begun anew has another number
    tables["open_ops"] = sorted(row[1:] for row in tables["open_ops"])
    return tables


@pytest.mark.blocking  # hypothesis is synchronous
@settings(max_examples=60, deadline=None)
@given(STEPS, ENDS)
def test_any_end_of_a_life_may_be_said_again(parts: list[list[tuple[str, Any]]], how: str) -> None:
    steps = [step for part in parts for step in part]
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        runner.run(_live(Path(folder) / "runs.db", steps, how))
