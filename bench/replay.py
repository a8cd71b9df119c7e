"""How long a journal takes to be replayed: `python -m bench.replay [RECORDS]`, in the root."""

from __future__ import annotations

import sys
import time

from stepwell import Signal, step, wait_for_signal, workflow
from stepwell_queue.contract import Kind, NewRun, Record, RecordKind, RunCopy, Status
from stepwell_runtime.codec import Codec
from stepwell_runtime.core.guard import GuardLoop
from stepwell_runtime.journals import lines
from stepwell_runtime.journals.files import copies
from stepwell_runtime.journals.replay import replayed
from stepwell_runtime.journals.writing import copy_lines
from stepwell_runtime.launch import pack_arguments

go = Signal("go", int)


@step
async def count(number: int) -> int:
    raise AssertionError("it is in the journal")


@workflow(name="long journal")
async def counts(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await count(number)
    value: int = await wait_for_signal(go)
    return total + value


def long_run(steps: int) -> RunCopy:
    """Return a run that has executed so many steps, and waits."""
    codec = Codec()
    journal = [
        Record(at, int(RecordKind.STEP_OK), str(at), "count", codec.encode(1, "one"), 1000.0)
        for at in range(steps)
    ]
    args = pack_arguments(([codec.encode(steps, "the steps")], {}))
    id = f"run-{steps}"
    new = NewRun(id, int(Kind.WORKFLOW), "long journal", 1, "default", args, b"", 7, 1000.0)
    return RunCopy(
        new, int(Status.PARKED), 0, 0, 0, 0, 1, 0, 1000.0, None, "signal go", None, None, b"",
        journal, (), (), (),
    )  # fmt: skip


def exported(steps: int) -> list[bytes]:
    """Return the lines of a file with such a run."""
    heading, end = lines.Heading(lines.FORMAT), lines.End(1)
    return [lines.encode(heading), *copy_lines(long_run(steps), Codec()), lines.encode(end)]


def main(records: int) -> None:
    codec, guard = Codec(), GuardLoop()
    [copy] = copies(exported(records), "the journal", codec)
    taken: list[float] = []
    for _ in range(5):
        begun = time.perf_counter()
        outcome = replayed(copy, counts.definition, codec, guard)
        taken.append(time.perf_counter() - begun)
        assert outcome.verdict == "ok", outcome.message
    print(f"{records} records: {min(taken):.3f} s, {min(taken) / records * 1e6:.1f} us each")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
