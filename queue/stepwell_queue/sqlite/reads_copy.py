"""What is read of a run so that it can be copied, beside its history."""

from __future__ import annotations

from stepwell_queue.contract import AnswerCopy, Aside, ListAnswers, ReadAside, ReadState
from stepwell_queue.errors import RunNotFound
from stepwell_queue.sqlite.reads import Reads
from stepwell_queue.sqlite.reads_note import read_state
from stepwell_queue.sqlite.statements import SQL


async def list_answers(reads: Reads, query: ListAnswers) -> list[AnswerCopy]:
    run = (await read_state(reads, ReadState(query.id))).run
    return [
        AnswerCopy(uid, bool(refused), value, at)
        for uid, refused, value, at in await reads.rows(SQL["answers_of"], (run, query.after))
    ]


async def read_aside(reads: Reads, query: ReadAside) -> Aside:
    for again, due, generation, code in await reads.rows(SQL["aside_of"], (query.id,)):
        return Aside(again, due, None if code is None or code < 0 else (generation, code))
    raise RunNotFound(query.id)
