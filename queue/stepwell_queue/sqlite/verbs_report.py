"""What runs say of themselves."""

from __future__ import annotations

from typing import Final

from stepwell_queue.contract import Report
from stepwell_queue.contract.reports import MOST_LINES, MOST_LOG_BYTES, LogLine
from stepwell_queue.errors import StaleFence
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Tx

_REPORT, _REPORTED, _ADD = SQL["report"], SQL["reported"], SQL["add_line"]
_FIRST_KEPT, _DROP, _COUNT = SQL["first_line_kept"], SQL["drop_lines"], SQL["count_lines"]
# A tenth goes at once: to drop as many as came would cost a look at all of them with each report.
_LINES_LEFT: Final = MOST_LINES * 9 // 10
_BYTES_LEFT: Final = MOST_LOG_BYTES * 9 // 10


def report(tx: Tx, verb: Report) -> None:
    sizes = [_size(line) for line in verb.lines]
    found = tx.execute(
        _REPORT,
        (
            verb.number, verb.fraction, verb.note, verb.at, len(sizes), sum(sizes), verb.run,
            verb.fence,
        ),
    ).fetchall()  # fmt: skip
    if not found:
        if tx.one(_REPORTED, (verb.run, verb.fence, verb.number)) is None:
            raise StaleFence(verb.run, verb.fence)
        return  # a repetition
    if not sizes:
        return
    tx.executemany(
        _ADD,
        [
            (verb.run, line.at, line.text, line.fields, line.path, line.attempt, size)
            for line, size in zip(verb.lines, sizes, strict=True)
        ],
    )
    lines, size = found[0]
    if lines > MOST_LINES or size > MOST_LOG_BYTES:
        (first,) = tx.one(_FIRST_KEPT, (verb.run, _BYTES_LEFT, _LINES_LEFT))
        tx.execute(_DROP, (verb.run, first))
        tx.execute(_COUNT, (verb.run,))


def _size(line: LogLine) -> int:
    return len(line.text.encode()) + len(line.fields.encode())
