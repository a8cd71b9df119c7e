"""The replay core: drives a workflow coroutine by its journal. No I/O, no clock, no loop.

Journal records are delivered one at a time, in order; after each, all branches run until they
block. What they have asked for and got no record of is in `ops`; the driver executes that, journals
the outcome, and delivers it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context
from typing import Any

from stepwell_queue.contract import Record, RecordKind
from stepwell_runtime.codec import Codec, DecodingError
from stepwell_runtime.core.asking import ask
from stepwell_runtime.core.branch import (
    Branch,
    CallOp,
    Group,
    Op,
    OpState,
    as_coroutine,
    is_handling_cancel,
)
from stepwell_runtime.core.commands import (
    CallCommand,
    Command,
    GroupCommand,
)
from stepwell_runtime.core.discard import close_coroutine, finish_generator, is_over
from stepwell_runtime.core.groups import branch_of_group_ended, open_group
from stepwell_runtime.core.guard import GuardLoop, foreign_await
from stepwell_runtime.core.inbound import DetachedChildren, Signals
from stepwell_runtime.core.outcomes import (
    FITTING,
    SUCCEEDED,
    Resumed,
    after_child,
    after_signal,
    after_timer,
    child_cancelled,
    completed,
    described,
    ended_by,
    throwable,
    voids,
)
from stepwell_runtime.core.outcomes import (
    Outcome as Outcome,
)
from stepwell_runtime.core.undo import Undo, UndoStack, snapshot
from stepwell_runtime.definitions import StepDefinition
from stepwell_runtime.errors import (
    Cancelled,
    Diverged,
    NotDurable,
)
from stepwell_runtime.scope import RunFacts, current

MOST_SWALLOWED = 100
MOST_REFUSED = 100
FAILURES_KEPT = 64

_set_running_loop = asyncio._set_running_loop
_get_running_loop = asyncio._get_running_loop


class Execution:
    """One run's code, standing wherever its journal has brought it."""

    __slots__ = (
        "_cancel_name",
        "_cancel_reason",
        "_context",
        "_detached",
        "_ended",
        "_failures",
        "_generators",
        "_guard",
        "_live",
        "_main",
        "_main_outcome",
        "_ready",
        "_refused",
        "_signals",
        "_swallowed",
        "_undo_stack",
        "_violations",
        "closing",
        "codec",
        "delivered",
        "facts",
        "failure",
        "now",
        "opened",
        "ops",
        "other_arguments",
        "outcome",
        "replaying",
        "resumed",
        "rolled_back",
        "rolling_back",
        "seed",
        "seq",
        "stuck",
        "withdrawn",
        "zombies",
    )

    def __init__(
        self,
        main: Callable[[], Coroutine[Any, Any, Any]],
        facts: RunFacts,
        *,
        seed: str,
        now: float,
        codec: Codec,
        context: Context,
    ) -> None:
        self.facts, self.seed, self.now, self.codec = facts, seed, now, codec
        self.replaying = False
        self.closing = False
        self._violations: list[NotDurable] = []
        self.stuck: Exception | None = None
        self.outcome: Outcome | None = None
        self.rolling_back = False
        self.rolled_back = False
        self.failure = b""  # what began the rollback, as it was stored
        self.resumed = 0  # how often the rollback was resumed
        self._undo_stack = UndoStack()
        self.ops: dict[str, Op] = {}
        self.opened: list[Op] = []
        self.withdrawn: list[Op] = []
        self.seq = 0
        self.delivered: list[tuple[int, int, bool]] = []
        self.other_arguments: list[Op] = []  # replayed steps that were recorded with others
        self.zombies: list[object] = []
        self._ended: set[str] = set()
        self._ready: deque[tuple[Branch, Any, BaseException | None]] = deque()
        self._live: dict[Branch, None] = {}
        self._signals: Signals | None = None
        self._detached: DetachedChildren | None = None
        self._failures: deque[tuple[int, BaseException]] | None = None
        self._cancel_name: str | None = None
        self._cancel_reason = b""
        self._main_outcome: Outcome | None = None
        self._swallowed = 0
        self._refused = 0
        self._generators: list[AsyncGenerator[Any, Any]] = []
        self._guard = GuardLoop(self._violations)
        self._context = context
        self._main = self.add_branch("", main(), context, None, 0, exempt=False)

    # --- what the driver says ---

    def begin(self) -> None:
        """Run the code to its first durable operation."""
        self._driven(self._take_turns)

    def deliver(self, record: Record) -> None:
        """Deliver the next journal record and run all branches until they block."""
        if self.stuck is not None:
            return
        try:
            self._deliver(record)
        except (Diverged, DecodingError) as error:
            self.stuck = error
            return
        self._driven(self._take_turns)

    def take_opened(self) -> list[Op]:
        """Return the operations asked for since the last call that still want an outcome."""
        opened, self.opened = self.opened, []
        return [op for op in opened if op.state is not OpState.ENDED]

    def take_withdrawn(self) -> list[Op]:
        """Return what ended without a record of its own, or is settling, since the last call."""
        withdrawn, self.withdrawn = self.withdrawn, []
        return withdrawn

    def was_asked(self, path: str) -> bool:
        """Whether the code has asked for the operation at `path`, be it open or ended."""
        return path in self.ops or path in self._ended

    @property
    def finished(self) -> bool:
        """Nothing more will be asked for, rollback included."""
        return self.outcome is not None and (self.rolled_back or not self.wants_rollback)

    @property
    def wants_rollback(self) -> bool:
        outcome = self.outcome
        return outcome is not None and outcome.verdict != "completed" and self._undo_stack.wanted

    @property
    def undos(self) -> list[Undo]:
        """Every undo that was registered, oldest first."""
        return self._undo_stack.all

    @property
    def undo_errors(self) -> list[BaseException]:
        return self._undo_stack.errors

    @property
    def unread_signals(self) -> int:
        return 0 if self._signals is None else self._signals.unread

    def waits_for(self) -> list[Op]:
        return list(self.ops.values())

    def retry_voids(self) -> list[int]:
        """Return the seqs to void so that the run goes on from the operation that failed it.

        Void are that operation's record and the records of everything asked for after it.
        """
        outcome = self.outcome
        if outcome is None or outcome.error is None:
            return []
        return voids(outcome.error, self._failures or (), self.delivered)

    # --- delivery ---

    def _deliver(self, record: Record) -> None:
        self.seq = record.seq + 1
        if record.at > self.now:
            self.now = record.at
        kind = record.kind
        if record.path:
            self._deliver_outcome(record)
        elif kind == RecordKind.SIGNAL:
            self._deliver_signal(record)
        elif kind == RecordKind.CANCEL:
            self._deliver_cancel(record)
        elif kind == RecordKind.FAILURE:
            self._begin_rollback(record)
        elif kind == RecordKind.REOPEN:
            self._rerun_failed_undos(record)
        elif kind != RecordKind.ROLL_BACK:
            self._deliver_detached(record)

    def _deliver_outcome(self, record: Record) -> None:
        op = self.ops.get(record.path)
        if op is None:
            if record.path in self._ended:
                return
            raise Diverged(record.path, described(record), "nothing there")
        if record.kind not in FITTING.get(op.kind, ()) or record.name != op.name:
            raise Diverged(record.path, described(record), f"{op.kind} {op.name!r}")
        # What failed while its branch was being cancelled got no retries, so it counts as cut.
        cut = op.state is OpState.SETTLING and record.kind not in SUCCEEDED
        self.delivered.append((record.seq, op.opened_after, cut))
        if record.digest and isinstance(op, CallOp) and record.digest != op.digest:
            self.other_arguments.append(op)
        value, error = self._decoded(op, record)
        self._end(op)
        self._ready.append((op.branch, value, error))

    def _decoded(self, op: Op, record: Record) -> Resumed:
        kind = record.kind
        if kind == RecordKind.STEP_OK or kind == RecordKind.CHILD_OK:
            assert isinstance(op, CallOp)
            definition = op.definition
            value = self.codec.decode(
                record.value, definition.result_type, where=definition.its_result
            )
            if isinstance(definition, StepDefinition) and definition.compensate is not None:
                return value, self._register_own_undo(definition.compensate, value)
            return value, None
        if kind == RecordKind.TIMER:
            return after_timer(self.codec, op)
        if kind == RecordKind.STARTED:
            child_id = record.value.decode()
            self.detached().started(child_id)
            return child_id, None
        if kind == RecordKind.STEP_CUT:
            return None, Cancelled()
        if kind == RecordKind.CHILD_CANCELLED:
            if op.state is OpState.SETTLING:
                return None, Cancelled()
            assert isinstance(op, CallOp)
            child = op.options.id or f"{self.facts.id}/{record.path}"
            return None, child_cancelled(self.codec, record, child)
        return None, self._noted(record, throwable(self.codec, record.value))

    def _register_own_undo(
        self, compensate: Callable[[Any], Any], value: Any
    ) -> BaseException | None:
        if self.rolling_back:
            return None
        try:
            self.register_undo(compensate(value))
        except Exception as error:  # noqa: BLE001 - user code: raised where the step is awaited
            return error
        return None

    def _noted(self, record: Record, error: BaseException) -> BaseException:
        """Remember which record brought this error, for a retry from there."""
        if self._failures is None:
            self._failures = deque(maxlen=FAILURES_KEPT)
        self._failures.append((record.seq, error))
        return error

    def _deliver_signal(self, record: Record) -> None:
        op = self.signals().arrive(record.name, record.value)
        if op is not None:
            self._end(op)
            self.withdrawn.append(op)
            self._ready.append((op.branch, *after_signal(self.codec, op, record.value)))

    def signals(self) -> Signals:
        if self._signals is None:
            self._signals = Signals()
        return self._signals

    def detached(self) -> DetachedChildren:
        if self._detached is None:
            self._detached = DetachedChildren()
        return self._detached

    def _deliver_detached(self, record: Record) -> None:
        for op in self.detached().ended(record):
            self._end(op)
            self.withdrawn.append(op)
            self._ready.append((op.branch, *self.join_outcome(op, record)))

    def join_outcome(self, op: Op, record: Record) -> Resumed:
        value, error = after_child(self.codec, op, record)
        return value, None if error is None else self._noted(record, error)

    def _deliver_cancel(self, record: Record) -> None:
        if self._cancel_name is not None or self.rolling_back or self._main_outcome is not None:
            return
        self._cancel_name, self._cancel_reason = record.name, record.value
        self.cancel_branch(self._main)

    @property
    def cancel_name(self) -> str | None:
        """The kind of cancellation, once there is one: "cancel" or "deadline"."""
        return self._cancel_name

    @property
    def cancel_reason(self) -> bytes:
        return self._cancel_reason

    # --- rollback ---

    def register_undo(self, call: CallCommand) -> Undo:
        """Put a call on the undo stack, with its arguments as they are now."""
        if self.rolling_back:
            return snapshot(self.codec, call, 0)
        return self._undo_stack.register(self.codec, call)

    def _begin_rollback(self, record: Record) -> None:
        if self.outcome is None or self.outcome.verdict == "completed":
            asked = "more operations" if self.outcome is None else self.outcome.verdict
            raise Diverged("the end", "a failure that began the rollback", asked)
        self.rolling_back = True
        self.failure = record.value
        self._undo_stack.run_all()
        self._next_undo()

    def _rerun_failed_undos(self, record: Record) -> None:
        if record.name != "resume_rollback":
            return
        if not self.rolled_back:
            raise Diverged("the end", "a resumed rollback", "a rollback that is not over")
        self.rolled_back = False
        self.resumed += 1
        self._undo_stack.run_failed()
        self._next_undo()

    def _next_undo(self) -> None:
        undo = self._undo_stack.next()
        if undo is None:
            self.rolled_back = True
            return
        coroutine = as_coroutine(undo.command(self.codec))
        context = self._context.copy()
        self.add_branch(f"~{undo.index}.", coroutine, context, None, undo.index, exempt=True)

    # --- running branches ---

    def add_branch(
        self,
        prefix: str,
        coroutine: Coroutine[Any, Any, Any],
        context: Context,
        group: Group | None,
        index: int,
        *,
        exempt: bool,
    ) -> Branch:
        """Make a branch and have it run with its next turn."""
        branch = Branch(self, prefix, coroutine, context, group, index, exempt)
        context.run(current.set, branch)
        self._live[branch] = None
        self._ready.append((branch, None, None))
        return branch

    def resume(self, branch: Branch, value: Any, error: BaseException | None) -> None:
        """Have a branch go on with its next turn."""
        self._ready.append((branch, value, error))

    def _driven(self, work: Callable[[], None]) -> None:
        """Run user code: with no loop but the guard, and async generators in our hands."""
        loop = _get_running_loop()
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._generators.append, finish_generator)
        _set_running_loop(self._guard)  # type: ignore[arg-type]  # stands in for the loop, by design
        try:
            work()
        finally:
            _set_running_loop(loop)
            sys.set_asyncgen_hooks(*hooks)

    def _take_turns(self) -> None:
        ready = self._ready
        while ready and self.stuck is None:
            branch, value, error = ready.popleft()
            if not branch.done:
                branch.waiting = None
                self._advance(branch, value, error)
            error = None  # its traceback may hold this frame

    def _advance(self, branch: Branch, value: Any, error: BaseException | None) -> None:
        coroutine = branch.coroutine
        failure: BaseException | None = None
        result: Any = None
        command: Any = None
        try:
            command = (
                branch.context.run(coroutine.send, value)
                if error is None
                else branch.context.run(coroutine.throw, error)
            )
        except StopIteration as stop:
            result = stop.value
        except BaseException as caught:  # noqa: BLE001 - whatever user code raises is its outcome
            failure = caught
        error = None
        if self._violations:
            self.stuck = self._violations[0]
        elif command is not None:
            self._ask(branch, command)
        elif failure is None and not is_over(coroutine):
            self.stuck = foreign_await(command)
        else:
            self._branch_ended(branch, result, failure)
        failure = (
            None  # its traceback holds this frame: a cycle, which only the collector would end
        )

    def _ask(self, branch: Branch, command: Any) -> None:
        if not isinstance(command, Command):
            self.stuck = foreign_await(command)
            return
        if branch.cancelling and not branch.exempt and not is_handling_cancel(command.handling):
            self._refuse_cancelled(branch, command)
            return
        path = branch.next_path()
        if isinstance(command, GroupCommand):
            open_group(self, branch, command, path)
            return
        try:
            op = ask(self, branch, command, path)
        except Exception as error:  # noqa: BLE001 - arguments that cannot be encoded: raised there
            self._ended.add(path)
            self._ready.append((branch, None, error))
            return
        if op is not None:
            branch.waiting = op
            self.ops[path] = op
            self.opened.append(op)

    def _refuse_cancelled(self, branch: Branch, command: Command) -> None:
        self._swallowed += 1
        if isinstance(command, GroupCommand):
            Group("", command, branch).drop_unstarted()
        if self._swallowed > MOST_SWALLOWED:
            self.stuck = NotDurable(
                f"workflow code has swallowed its cancellation {MOST_SWALLOWED} times: let "
                "Cancelled pass, or re-raise it"
            )
            return
        self._ready.append((branch, None, Cancelled()))

    def answered(self, branch: Branch, path: str, outcome: Resumed) -> None:
        """Note an operation whose outcome is known when it is asked for."""
        self._ended.add(path)
        self._ready.append((branch, *outcome))

    def _end(self, op: Op) -> None:
        op.state = OpState.ENDED
        self.ops.pop(op.path, None)
        self._ended.add(op.path)

    def _branch_ended(self, branch: Branch, value: Any, error: BaseException | None) -> None:
        branch.done = True
        del self._live[branch]
        group = branch.group
        if group is not None:
            branch_of_group_ended(self, group, branch, value, error)
        elif branch is self._main:
            self._main_outcome = (
                completed(self.codec, value, self.facts.workflow)
                if error is None
                else ended_by(error, self._cancel_name, self.facts.id)
            )
        elif self.rolling_back:
            self._undo_stack.failed(branch.index, error)
            self._next_undo()
        if self.outcome is None and self._main_outcome is not None and not self._live:
            self.outcome = self._main_outcome
        branch.unlink()

    # --- cancellation ---

    def cancel_branch(self, branch: Branch) -> None:
        """Cancel what a branch does: waits at once, the rest at its next durable operation."""
        if branch.done or branch.cancelling:
            return
        # Only its own group cancels a branch that is exempt: the cancellation of the run has gone
        # past where it was opened. It is cleanup that lost a race, or whose sibling failed.
        branch.cancelling, branch.exempt = True, False
        waiting = branch.waiting
        if isinstance(waiting, Group):
            if waiting.started < len(waiting.command.branches):
                waiting.drop_unstarted()
                waiting.was_cancelled = True
            for sub in waiting.branches:
                self.cancel_branch(sub)
        elif waiting is not None and waiting.state is OpState.OPEN:
            self._cancel_op(waiting)

    def _cancel_op(self, op: Op) -> None:
        self.withdrawn.append(op)
        # Asked for in this very delivery, so the driver cannot have begun it.
        unseen = op.opened_after == self.seq
        if not unseen and (
            op.kind in ("child", "start") or (op.kind in ("step", "remote") and _must_finish(op))
        ):
            op.state = OpState.SETTLING
            return
        self._end(op)
        self._ready.append((op.branch, None, Cancelled()))

    # --- discarding ---

    def refuse(self) -> None:
        """Refuse a durable operation asked for while the coroutine is being closed."""
        self._refused += 1
        if self._refused <= MOST_REFUSED:
            raise GeneratorExit

    def close(self) -> None:
        """Discard the coroutines.

        `finally` blocks run, whatever durable they ask for is refused.
        """
        if self.closing:
            return
        self.closing = True
        if self._live or self._generators:
            self._driven(self._close_all)
        for branch in self._live:
            branch.unlink()
        self._live.clear()
        self._generators.clear()
        self._ready.clear()

    def forget(self) -> None:
        """Drop all errors, once closed.

        They hold the frames that they went through, which hold this: cycles, all of them.
        """
        self._failures = self.outcome = self._main_outcome = self.stuck = None
        self._undo_stack = UndoStack()
        self._violations.clear()

    def _close_all(self) -> None:
        for branch in reversed(list(self._live)):
            if isinstance(branch.waiting, Group):
                branch.waiting.drop_unstarted()
            close_coroutine(branch.context, branch.coroutine, self.zombies)
        for generator in self._generators:
            finish_generator(generator)


def _must_finish(op: Op) -> bool:
    definition = op.definition if isinstance(op, CallOp) else None
    return not (isinstance(definition, StepDefinition) and definition.on_cancel == "interrupt")
