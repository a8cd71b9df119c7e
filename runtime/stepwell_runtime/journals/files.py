"""The lines of a file back as runs. Nothing that is stored in them is decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from stepwell_queue.contract import (
    ImportRuns,
    InboxKind,
    InboxRow,
    Kind,
    NewRun,
    Phase,
    Record,
    RecordKind,
    Rollback,
    RunCopy,
    Status,
    Terms,
)
from stepwell_queue.contract.check import MAX_BYTES, WEIGHTS
from stepwell_queue.contract.copies import MOST_COPIES
from stepwell_queue.errors import RequestRefused
from stepwell_runtime.codec import Codec, DecodingError
from stepwell_runtime.journals import lines
from stepwell_runtime.journals.checking import check

_question: Final = msgspec.msgpack.Decoder(tuple[str, bytes]).decode


def lines_of(file: str | Path) -> Iterator[bytes]:
    """Yield the lines of a file; one that is too long comes cut, and is refused."""
    with Path(file).open("rb") as opened:
        while line := opened.readline(lines.MOST_BYTES + 1):
            yield line


def copies(given: Iterable[bytes | str], what: str, codec: Codec) -> Iterator[RunCopy]:
    """Yield the runs that stand in the lines of a file.

    Raises RequestRefused, naming the line, for what is no such file. `what`: how the file is
    called.
    """
    reader = _Reader(what, codec)
    for line in given:
        copy = reader.read(line)
        if copy is not None:
            yield copy
    reader.finish()


class _Reader:
    """Gathers the lines of one run after the other."""

    def __init__(self, what: str, codec: Codec) -> None:
        self._what, self._codec = what, codec
        self._number = 0
        self._runs: set[str] = set()
        self._run: lines.RunLine | None = None
        self._parts: list[lines.Part] = []
        self._begun = self._ended = False
        self._size = 0  # bytes of the lines of this run

    def read(self, line: bytes | str) -> RunCopy | None:
        """Take a line; answers a run once it is whole."""
        self._number += 1
        if len(line) > lines.MOST_BYTES:
            self._refuse(f"it has more than {lines.MOST_BYTES} bytes")
        if not line.strip():
            return None
        self._size += len(line)
        try:
            return self._take(lines.decode(line))
        except (msgspec.MsgspecError, ValueError, DecodingError, RecursionError) as error:
            self._refuse(str(error))

    def finish(self) -> None:
        if not self._ended:
            self._number += 1
            self._refuse("the file ends before its last line, so it was cut short")

    def _refuse(self, why: str) -> NoReturn:
        hint = "" if self._begun else ": is it a file that `stepwell export` wrote?"
        raise RequestRefused(f"{self._what}, line {self._number}: {why}{hint}")

    def _take(self, line: lines.Line) -> RunCopy | None:
        if self._ended:
            raise ValueError("something follows the line that says that the file ends")
        if isinstance(line, lines.Heading):
            if self._begun:
                raise ValueError("a second heading")
            if line.version != lines.FORMAT:
                raise ValueError(
                    f"version {line.version} of the format, written by Stepwell {line.release}: "
                    f"this release reads version {lines.FORMAT}"
                )
            self._begun = True
            return None
        if not self._begun:
            raise ValueError('the heading {"line": "stepwell-runs", …} is missing')
        if isinstance(line, lines.RunLine):
            self._begin(line)
        elif isinstance(line, lines.End):
            self._end(line)
            return None
        elif self._run is None:
            raise ValueError("a part of a run, before the run or after all of its parts")
        else:
            self._parts.append(line)
        if self._size > lines.MOST_OF_RUN:
            raise ValueError(f"the lines of one run have more than {lines.MOST_OF_RUN} bytes")
        run = self._run
        assert run is not None
        if len(self._parts) < sum(_counts(run)):
            return None
        self._run, parts, self._parts, self._size = None, self._parts, [], 0
        return self._whole(run, parts)

    def _begin(self, line: lines.RunLine) -> None:
        if self._run is not None:
            raise ValueError(f"run {self._run.id!r} is not whole")
        if line.id in self._runs:
            raise ValueError(f"run {line.id!r} a second time")
        self._runs.add(line.id)
        self._run = line

    def _end(self, line: lines.End) -> None:
        if self._run is not None:
            raise ValueError(f"run {self._run.id!r} is not whole")
        if line.runs != len(self._runs):
            raise ValueError(f"the file says that it has {line.runs} runs: {len(self._runs)} came")
        self._ended = True

    def _whole(self, run: lines.RunLine, parts: list[lines.Part]) -> RunCopy:
        records = [one for one in parts if isinstance(one, lines.RecordLine)]
        ops = [one for one in parts if isinstance(one, lines.OpenLine)]
        messages = [one for one in parts if isinstance(one, lines.MessageLine)]
        audit = [one for one in parts if isinstance(one, lines.AuditLine)]
        failures = [one for one in parts if isinstance(one, lines.FailureLine)]
        values = [one for one in parts if isinstance(one, lines.ValueLine)]
        items = [one for one in parts if isinstance(one, lines.ItemLine)]
        answers = [one for one in parts if isinstance(one, lines.AnswerLine)]
        came: tuple[Sequence[lines.Part], ...] = (
            records,
            ops,
            messages,
            audit,
            failures,
            values,
            items,
            answers,
        )
        if tuple([len(some) for some in came]) != _counts(run):
            raise ValueError(f"other parts of run {run.id!r} than its line says")
        journal = [lines.record_of(one) for one in records]
        copy = RunCopy(
            NewRun(
                run.id, lines.number(Kind, run.kind), run.name, run.version, run.queue, run.args,
                run.digest, run.nonce, run.created, run.priority, run.scheduled, run.deadline,
                run.options, Terms(key=run.key) if run.key else None,
            ),
            lines.number(Status, run.status),
            lines.number(Phase, run.phase),
            lines.number(Rollback, run.rollback),
            run.attempts,
            run.crashes,
            run.fence,
            run.generation,
            run.started,
            run.ended,
            run.waiting,
            run.parent_id,
            run.parent_path,
            run.value,
            journal,
            [lines.open_of(one) for one in ops],
            [lines.message_of(one) for one in messages],
            [lines.audit_of(one) for one in audit],
            [lines.failure_of(one) for one in failures],
            [lines.value_of(one) for one in values],
            [lines.item_of(one) for one in items],
            [lines.answer_of(one) for one in answers],
            run.said,
            _absorbed(journal),
            lines.number(Status, run.again) if run.again else None,
            run.due,
        )  # fmt: skip
        check(copy, self._codec)
        return copy


def _counts(run: lines.RunLine) -> tuple[int, ...]:
    return (
        run.records, run.open, run.messages, run.audit, run.failures, run.values, run.items,
        run.answers,
    )  # fmt: skip


def _absorbed(journal: list[Record]) -> list[InboxRow]:
    """Return what a run has taken out of its inbox, by its journal.

    Continued as new, it has those of them again that its code has not taken.
    """
    found: list[InboxRow] = []
    for one in journal:
        if one.kind == RecordKind.SIGNAL:
            uid, kind, value = f"record {one.seq}", InboxKind.SIGNAL, one.value
        elif one.kind == RecordKind.QUESTION:
            (uid, value), kind = _question(one.value), InboxKind.QUESTION
        else:
            continue
        found.append(InboxRow(0, 0, int(kind), uid, one.name, "", 0, value, one.at))
    return found


def bounded(given: Iterable[RunCopy], what: str) -> list[RunCopy]:
    """Return all of them, unless they are too many for one import. Raises RequestRefused."""
    found: list[RunCopy] = []
    weight = WEIGHTS[ImportRuns]
    size = 0
    for copy in given:
        found.append(copy)
        size += weight(ImportRuns((copy,), "", "", "", 0.0))
        if size > MAX_BYTES or len(found) > MOST_COPIES:
            raise RequestRefused(
                f"{what} has more than {MAX_BYTES} bytes or {MOST_COPIES} runs, which is the most "
                "of one import: export fewer runs to a file"
            )
    return found


def prepared(given: list[RunCopy]) -> list[RunCopy]:
    """Return copies as they may be stored beside each other. Raises RequestRefused.

    A step on a queue of its own that had not ended is left out: resumed, its run begins it anew.
    """
    known = {copy.run.id: copy for copy in given}
    kept: list[RunCopy] = []
    for copy in _parents_first(given, known):
        ended = copy.status >= Status.COMPLETED
        if copy.run.kind == Kind.STEP and not ended and copy.parent_id in known:
            continue
        if not ended:
            copy = _prepared(copy, known)
        kept.append(copy)
    return kept


def _prepared(copy: RunCopy, known: dict[str, RunCopy]) -> RunCopy:
    told = {row.name for row in copy.inbox if row.kind == InboxKind.CHILD_ENDED}
    ops = list(copy.open_ops)
    for op in copy.open_ops:
        if op.kind not in ("child", "remote"):
            continue
        id = op.value.decode()
        child = known.get(id)
        if op.kind == "remote":
            if id not in told and (child is None or child.status < Status.COMPLETED):
                ops.remove(op)
                copy = msgspec.structs.replace(copy, again=None)  # it has to begin that anew
        elif id not in told and child is None:
            raise RequestRefused(
                f"run {copy.run.id!r} waits for its child {id!r}, which is not in the file, and "
                "would wait for ever: export it with its children"
            )
    return msgspec.structs.replace(copy, open_ops=ops)


def _parents_first(given: list[RunCopy], known: dict[str, RunCopy]) -> list[RunCopy]:
    ordered: dict[str, RunCopy] = {}
    for copy in given:
        line = [copy]
        while True:
            above = known.get(line[-1].parent_id or "")
            if above is None or above.run.id in ordered:
                break
            if above in line:
                raise RequestRefused(f"run {above.run.id!r} is a child of its own children")
            line.append(above)
        ordered.update((one.run.id, one) for one in reversed(line))
    return list(ordered.values())
