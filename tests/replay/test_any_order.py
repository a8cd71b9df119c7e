"""Whatever the code and the order of events, the journal brings it back to where it was."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from functools import partial
from random import Random
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from stepwell import Diverged
from stepwell_queue.contract import Record, RecordKind
from stepwell_runtime.core.branch import CallOp, Op, OpState
from tests.property.shapes import SIGNALS, Node, shaped, shapes
from tests.property.test_crash import SOAK
from tests.replay.driver import Driven

MOST_EVENTS = 60

many = settings(
    max_examples=3000 if SOAK else 60,
    deadline=None,
    derandomize=not SOAK,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Chance:
    """Lets one of the things happen that could happen next."""

    def __init__(self, run: Driven, random: Random) -> None:
        self.run, self.random = run, random
        self.detached: list[str] = []

    def something(self) -> bool:
        """Whether anything could happen."""
        execution = self.run.execution
        if execution.finished or execution.stuck is not None:
            return False
        if execution.outcome is not None and not execution.rolling_back and not execution.ops:
            self.run.roll_back()
            return True
        possible: list[Callable[[], None]] = [
            partial(self._end, op) for op in execution.ops.values()
        ]
        possible += [partial(self.run.is_due, path) for path in execution.deadlines]
        possible += [lambda: self.run.signal(self.random.choice(SIGNALS), "value")]
        if self.random.random() < 0.1:
            possible += [self.run.cancel]
        for child in self.detached:
            possible.append(partial(self._child_ends, child))
        self.random.choice(possible)()
        return True

    def _child_ends(self, child: str) -> None:
        self.detached.remove(child)
        self.run.child_ends(child, "grown")

    def _end(self, op: Op) -> None:
        run, path = self.run, op.path
        settling = op.state is OpState.SETTLING
        if op.kind in ("sleep", "wait"):
            if op.due is not None:
                run.is_due(path)
        elif op.kind == "join":
            if op.name in self.detached:
                self._child_ends(op.name)
        elif op.kind == "start":
            run.child_starts(path, f"child-{path}")
            self.detached.append(f"child-{path}")
        elif settling and self.random.random() < 0.3:
            run.is_cut(path)
        elif self.random.random() < 0.2:
            run.raises(path, ValueError(path))
        else:
            assert isinstance(op, CallOp)
            run.returns(path, None if op.name == "revert" else f"label {path}")


@contextmanager
def lived(node: Node, random: Random) -> Generator[Driven, None, None]:
    """A run of `shaped` to which things have happened until nothing more could, or for a while."""
    with closing(Driven(shaped.definition.fn, node)) as run:
        chance = Chance(run, random)
        for _ in range(MOST_EVENTS):
            run.marks()  # durable before anything else may happen
            if not chance.something():
                break
        run.marks()
        yield run


def stand(run: Driven) -> Any:
    """Where a run stands."""
    execution = run.execution
    outcome = execution.outcome
    return (
        run.open,
        {path: (op.state, op.due, op.opened_after) for path, op in execution.ops.items()},
        None if outcome is None else (outcome.verdict, outcome.value, repr(outcome.error)),
        [(undo.call.definition.name, undo.call.args, undo.discarded) for undo in execution.undos],
        execution.rolling_back,
        execution.rolled_back,
        execution.unread_signals,
    )


@many
@given(node=shapes(), random=st.randoms(use_true_random=False))
def test_the_same_journal_gives_the_same_commands_in_the_same_order(
    node: Node, random: Random
) -> None:
    with lived(node, random) as run:
        assert run.execution.stuck is None, run.execution.stuck
        again = run.replayed()
        assert again.events == run.events
        assert stand(again) == stand(run)


@many
@given(node=shapes(), random=st.randoms(use_true_random=False), at=st.integers(0, MOST_EVENTS))
def test_a_run_that_goes_on_after_a_replay_ends_as_if_there_had_been_none(
    node: Node, random: Random, at: int
) -> None:
    with lived(node, random) as run, closing(Driven(shaped.definition.fn, node)) as first:
        while at < len(run.journal) and run.journal[at].kind == RecordKind.MARK:
            at += 1
        for record in run.journal[:at]:
            first.deliver(record)
        second = first.replayed()
        for record in run.journal[at:]:
            second.deliver(record)
        assert second.events == run.events
        assert stand(second) == stand(run)


@many
@given(node=shapes(), random=st.randoms(use_true_random=False), data=st.data())
def test_a_step_that_was_recorded_under_another_name_is_a_divergence(
    node: Node, random: Random, data: st.DataObject
) -> None:
    with lived(node, random) as run, closing(Driven(shaped.definition.fn, node)) as again:
        steps = [record for record in run.journal if record.kind == RecordKind.STEP_OK]
        assume(steps)
        wrong = data.draw(st.sampled_from(steps))
        for record in run.journal:
            again.deliver(renamed(record) if record is wrong else record)
        assert isinstance(again.stuck, Diverged)
        assert again.stuck.path == wrong.path


def renamed(record: Record) -> Record:
    return Record(record.seq, record.kind, record.path, "another", record.value, record.at)
