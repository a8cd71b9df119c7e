"""How long a journal takes to be replayed: `python -m bench.replay [RECORDS]`, in the root."""

from __future__ import annotations

import sys
import time

from stepwell_runtime.codec import Codec
from stepwell_runtime.core.guard import GuardLoop
from stepwell_runtime.journals.files import copies
from stepwell_runtime.journals.replay import replayed
from tests.evolution.test_long_journal import counts, exported


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
