"""Journals that earlier releases wrote are replayed by this one, for ever."""

from __future__ import annotations

from contextvars import Context
from pathlib import Path

import msgspec
import pytest

from stepwell_queue.contract import RecordKind, Rollback
from stepwell_runtime.codec import Codec
from stepwell_runtime.core.execution import Execution
from stepwell_runtime.core.guard import GuardLoop
from tests.behaviour.recorded import CALLS, JOURNALS, Kept
from tests.replay.driver import Facts

FILES = sorted(JOURNALS.glob("*.json"))
codec = Codec()


def replayed(kept: Kept) -> Execution:
    workflow = CALLS[kept.workflow].definition
    execution = Execution(
        lambda: workflow.fn("p-1"),
        Facts(kept.id, kept.workflow),
        seed=kept.seed,
        now=kept.created,
        codec=codec,
        context=Context(),
        guard=GuardLoop(),
    )
    execution.begin()
    for one in kept.journal:
        execution.deliver(one)
    return execution


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("name", CALLS)
def test_a_journal_of_an_earlier_release_leads_to_the_same_end(file: Path, name: str) -> None:
    runs = msgspec.json.decode(file.read_bytes(), type=list[Kept])
    (kept,) = [run for run in runs if run.workflow == name]
    execution = replayed(kept)
    try:
        assert execution.stuck is None
        assert execution.finished
        assert execution.other_arguments == []
        outcome = execution.outcome
        assert outcome is not None
        assert outcome.verdict == kept.status
        assert execution.rolled_back == (kept.rollback == Rollback.COMPLETE)
        if outcome.error is None:
            assert codec.decode(outcome.value) == codec.decode(kept.value)
        else:
            assert str(outcome.error) == str(codec.decode_error(kept.value))
    finally:
        execution.close()


def test_the_journals_that_are_kept_hold_records_of_every_usual_kind() -> None:
    (newest,) = FILES[-1:]
    runs = msgspec.json.decode(newest.read_bytes(), type=list[Kept])
    kinds = {RecordKind(one.kind) for run in runs for one in run.journal}
    assert kinds >= {
        RecordKind.STEP_OK,
        RecordKind.STEP_FAILED,
        RecordKind.TIMER,
        RecordKind.SIGNAL,
        RecordKind.CHILD_OK,
        RecordKind.CHILD_FAILED,
        RecordKind.STARTED,
        RecordKind.FAILURE,
    }
