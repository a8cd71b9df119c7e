"""Runs as files: exported from one store, imported into another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from stepwell import _options as check
from stepwell_queue.errors import IdConflict, RequestRefused

if TYPE_CHECKING:
    from stepwell_runtime.codec import Codec
    from stepwell_runtime.engine import Engine


class JournalMethods:
    """What an app does with runs as files."""

    @property
    def engine(self) -> Engine:
        raise NotImplementedError

    @property
    def codec(self) -> Codec:
        raise NotImplementedError

    async def export_runs(self, *ids: str, children: bool = True) -> AsyncGenerator[bytes]:
        """Yield runs as the lines of a file, with all that is recorded of them.

        `children`: also all of their trees. Raises RunNotFound.
        """
        from stepwell_runtime.journals.writing import written

        wanted = [check.run_id(id) for id in ids]

        async def each() -> AsyncGenerator[str]:
            for id in wanted:
                yield id

        async for line in written(self.engine.store, self.codec, each(), children=children):
            yield line

    async def import_runs(
        self, file: str | Path | Iterable[bytes], /, *, reason: str = "", actor: str = ""
    ) -> list[str]:
        """Store the runs of an exported file, or of its lines, all or none, and return their ids.

        Those that had ended have ended here, too. All others are paused, whatever they did: nothing
        of them is executed before `resume` asks for it. Nothing that is stored in the file is
        decoded. Raises RequestRefused, naming the line, for what is no such file, and if an id is
        taken.
        """
        from stepwell_runtime.journals.files import bounded, copies, lines_of, prepared

        check.asked("", reason, actor)
        what = str(file) if isinstance(file, str | Path) else "the given lines"
        given = lines_of(file) if isinstance(file, str | Path) else file
        read = await asyncio.to_thread(
            lambda: prepared(bounded(copies(given, what, self.codec), what))
        )
        if not read:
            return []
        try:
            await self.engine.import_runs(read, actor=actor, reason=reason or f"from {what}")
        except IdConflict as taken:
            raise RequestRefused(
                f"{what}: run id {taken.id!r} is taken in this store, by {taken.existing}: import "
                "into a store that has no run of these ids"
            ) from None
        except ValueError as error:
            raise RequestRefused(f"{what}: {error}") from None
        return [copy.run.id for copy in read]
