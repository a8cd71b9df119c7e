"""Runs as files, for code that blocks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from stepwell._app.app import Stepwell
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
