"""What a run says of itself while it runs: how far it is, and lines of a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta

from stepwell_queue.contract.queries import Query
from stepwell_queue.contract.rows import Time
from stepwell_queue.contract.verbs import Verb

MOST_LINES: Final = 1000
"""Lines of a log that are kept of a run; when there are more, the oldest tenth goes."""
MOST_LOG_BYTES: Final = 256 * 1024
"""What these lines may take, their fields included."""

MOST_TEXT: Final = 8192
"""Characters of a line, and of its fields."""
MOST_NOTE: Final = 1000
"""Characters of a note on progress."""

# Checked where a verb comes in over the network, like `Time`.
Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]
Text = Annotated[str, Meta(max_length=MOST_TEXT)]
Note = Annotated[str, Meta(max_length=MOST_NOTE)]


class LogLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A line that an attempt has logged."""

    at: Time
    text: Text
    fields: Text = ""  # a JSON object; "" = none
    path: str = ""  # of the step; "" = it is a task
    attempt: int = 1


class Report(Verb[None], frozen=True, array_like=True, tag=72, gc=False):
    """What the holder of a run has to say of it: progress, lines of its log, or both.

    `number`: higher than in all reports with this fence before, by which one that is said again is
    known. `fraction` None = nothing new on progress, and `note` and `at` say nothing. At most
    MOST_LINES lines. Raises StaleFence.
    """

    run: int
    fence: int
    number: int
    fraction: Fraction | None
    note: Note
    at: Time
    lines: Sequence[LogLine] = ()


class ProgressRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a run is, from 0 to 1, as it said `at` a time."""

    fraction: float
    note: str
    at: float


class ReadProgress(Query[ProgressRow | None], frozen=True, array_like=True, tag=104):
    """Answered by the newest progress of a run, or of a step with a queue on its behalf.

    None = it has reported none. Raises RunNotFound.
    """

    answer: ClassVar[Any] = ProgressRow
    id: str


class LogRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A line of a log, with its number; later lines of a run have higher ones."""

    line: int
    at: float
    text: str
    fields: str
    path: str
    attempt: int


class ReadLog(Query[Sequence[LogRow]], frozen=True, array_like=True, tag=105):
    """Answered by at most `limit` lines of a run, and of its steps with a queue, oldest first.

    Those with a number over `after`. Raises RunNotFound.
    """

    answer: ClassVar[Any] = list[LogRow]
    id: str
    after: int = 0
    limit: int = MOST_LINES
