"""What the demo shows while it works."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from rich import progress as bars
from rich.console import Console


class Progress:
    """Counts what has ended; without a terminal it prints only what happens to the worker."""

    def __init__(self, console: Console, total: int) -> None:
        self._bar = bars.Progress(
            bars.TextColumn("orders"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TextColumn(
                "{task.fields[failed]} failed and rolled back, {task.fields[kills]} kills"
            ),
            bars.TimeElapsedColumn(),
            console=console,
        )
        self._task = self._bar.add_task("orders", total=total, failed=0, kills=0)
        self._count = self._failed = self.kills = 0
        self._more = asyncio.Condition()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        self._bar.print(f"[{self._count:>3}] {text}")

    async def ended(self, *, failed: bool) -> None:
        self._count += 1
        self._failed += failed
        self._bar.update(self._task, advance=1, failed=self._failed)
        async with self._more:
            self._more.notify_all()

    def killed(self, text: str) -> None:
        self.kills += 1
        self._bar.update(self._task, kills=self.kills)
        self.say(text)

    async def reached(self, count: int) -> None:
        """Wait until so many have ended."""
        async with self._more:
            await self._more.wait_for(lambda: self._count >= count)
