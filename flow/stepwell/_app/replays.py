"""Stored journals against the code at hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

from stepwell import _options as check
from stepwell._app.operations import statuses
from stepwell._app.views import RunStatus
from stepwell_queue.contract import Identity, Kind, RunCopy, RunFilter, Status

if TYPE_CHECKING:
    from stepwell_runtime.codec import Codec
    from stepwell_runtime.definitions import Definition
    from stepwell_runtime.engine import Engine

LIVE: Final = tuple(one.name.lower() for one in Status if not one.terminal)
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of replaying the journal of one run against the code at hand."""

    id: str
    name: str
    version: int
    status: RunStatus
    verdict: Literal["ok", "diverged", "raises", "not_durable", "cannot_decode", "no_code"]
    message: str
    """What is wrong; empty = nothing."""
    records: int
    """How many its journal has."""
    path: str | None = None
    """Where the code differs from the journal; None = it does not, or nowhere certain."""
    recorded: str | None = None
    """What the journal has there."""
    asked: str | None = None
    """What the code asks for there."""

    @property
    def ok(self) -> bool:
        """Whether this code goes on where the run stands."""
        return self.verdict == "ok"


class ReplayMethods:
    """Trying the code at hand on the journals of runs."""

    @property
    def engine(self) -> Engine:
        raise NotImplementedError

    @property
    def codec(self) -> Codec:
        raise NotImplementedError

    def definitions(self) -> dict[Identity, Definition]:
        raise NotImplementedError

    async def replay(
        self,
        *,
        status: str | Sequence[str] | None = None,
        name: str | None = None,
        created_after: datetime | None = None,
    ) -> AsyncGenerator[Replayed]:
        """Replay the journals of workflow runs against the code at hand, without executing steps.

        `status`: one or several status words; None = all that have not ended. `name`: only runs of
        this workflow; `created_after`: only those made then or later, an aware datetime; None =
        any. Nothing in the store changes, and its workers go on. Newest first.
        """
        from stepwell_runtime.journals.reading import copy_of, standing_history

        words = LIVE if status is None else tuple(statuses(status))
        since = None if created_after is None else check.wall_time(created_after, "created_after=")
        trial = _Trial(self.definitions(), self.codec)
        store, after = self.engine.store, None
        while page := await store.list_runs(
            RunFilter(
                statuses=[*words, "rolling_back"] if status is None else words,
                name=check.text(name, "name"),
                created_after=since,
                kinds=(Kind.WORKFLOW,),
                after=after,
                limit=_PAGE,
            )
        ):
            after = page[-1].run
            for run in page:
                found = await standing_history(store, run.id)
                if found is not None:  # else it was pruned meanwhile
                    yield trial.of(copy_of(found), found.run.status_name)
                await asyncio.sleep(0)  # a long journal keeps the loop long enough

    def replay_file(self, file: str | Path, /) -> Generator[Replayed]:
        """Replay the journals of the workflow runs in an exported file, likewise.

        Ended ones, too: they have to end as they did. The app need not be open. Raises
        RequestRefused for what is no such file.
        """
        from stepwell_runtime.journals.files import copies, lines_of

        trial = _Trial(self.definitions(), self.codec)
        for copy in _workflows(copies(lines_of(file), str(file), self.codec)):
            yield trial.of(copy, Status(copy.status).name.lower())


def _workflows(given: Iterator[RunCopy]) -> Iterator[RunCopy]:
    return (copy for copy in given if copy.run.kind == Kind.WORKFLOW)


class _Trial:
    """The code at hand, to be tried on one run after the other."""

    def __init__(self, definitions: dict[Identity, Definition], codec: Codec) -> None:
        from stepwell_runtime.core.guard import GuardLoop

        self._definitions, self._codec, self._guard = definitions, codec, GuardLoop()

    def of(self, copy: RunCopy, status: str) -> Replayed:
        from stepwell_runtime.definitions import WorkflowDefinition
        from stepwell_runtime.journals.replay import Outcome, replayed

        run = copy.run
        definition = self._definitions.get(Identity(run.kind, run.name, run.version))
        if isinstance(definition, WorkflowDefinition):
            found = replayed(copy, definition, self._codec, self._guard)
        else:
            found = Outcome("no_code", self._without_code(run.name, run.version))
        return Replayed(
            run.id,
            run.name,
            run.version,
            cast("RunStatus", status),
            found.verdict,
            found.message,
            len(copy.journal),
            found.path,
            found.recorded,
            found.asked,
        )

    def _without_code(self, name: str, version: int) -> str:
        others = sorted(
            one.version
            for one in self._definitions
            if one.kind == Kind.WORKFLOW and one.name == name
        )
        there = f"; there is version {', '.join(map(str, others))}" if others else ""
        return f"there is no workflow {name!r} of version {version} in this code{there}"
