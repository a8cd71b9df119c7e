"""Runs as files, for code that blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from stepwell._app.app import Stepwell
from stepwell._app.replays import Replayed
from stepwell._blocking.waiting import Work

T = TypeVar("T")


class BlockingJournals:
    """The methods of an app about exported runs; they block."""

    def do(self, work: Work[T]) -> T:
        """Run a coroutine function of the app in the loop's thread, and wait for its outcome."""
        raise NotImplementedError

    def export_runs(self, *ids: str, children: bool = True) -> list[bytes]:
        """Return runs as the lines of a file; see Stepwell.export_runs."""

        async def work(app: Stepwell) -> list[bytes]:
            return [line async for line in app.export_runs(*ids, children=children)]

        return self.do(work)

    def import_runs(
        self, file: str | Path | Iterable[bytes], /, *, reason: str = "", actor: str = ""
    ) -> list[str]:
        """Store the runs of an exported file; see Stepwell.import_runs."""
        return self.do(lambda app: app.import_runs(file, reason=reason, actor=actor))

    def replay(
        self,
        *,
        status: str | Sequence[str] | None = None,
        name: str | None = None,
        created_after: datetime | None = None,
    ) -> list[Replayed]:
        """Replay the journals of workflow runs against the code at hand; see Stepwell.replay."""

        async def work(app: Stepwell) -> list[Replayed]:
            tried = app.replay(status=status, name=name, created_after=created_after)
            return [one async for one in tried]

        return self.do(work)

    def replay_file(self, file: str | Path, /) -> list[Replayed]:
        """Replay the journals of an exported file; see Stepwell.replay_file."""

        async def work(app: Stepwell) -> list[Replayed]:
            return await asyncio.to_thread(lambda: list(app.replay_file(file)))

        return self.do(work)
