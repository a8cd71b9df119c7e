"""The replay core: drives a workflow coroutine by its journal. No I/O, no clock, no loop.

Journal records are delivered one at a time, in order; after each, all branches run until they
block. What they have asked for and got no record of is in `ops`; the driver executes that, journals
the outcome, and delivers it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context
from typing import Any

from stepwell_queue.contract import InboxKind, Record, RecordKind
from stepwell_runtime.codec import Codec, DecodingError
from stepwell_runtime.core.asking import ask, call_op
from stepwell_runtime.core.branch import (
    ENDED,
    SETTLING,
    Branch,
    CallOp,
    Group,
    Op,
    is_handling_cancel,
)
from stepwell_runtime.core.cancelling import refuse_cancelled
from stepwell_runtime.core.commands import CallCommand, Command, GroupCommand
from stepwell_runtime.core.deadlines import Deadline
from stepwell_runtime.core.delivery import deliver_to_run
from stepwell_runtime.core.discard import close_all, is_over
from stepwell_runtime.core.groups import branch_of_group_ended, open_group
from stepwell_runtime.core.guard import GuardLoop, foreign_await
from stepwell_runtime.core.inbound import DetachedChildren, Signals
from stepwell_runtime.core.linked import link
from stepwell_runtime.core.marks import Marks
from stepwell_runtime.core.outcomes import (
    FITTING,
    RETURNED,
    SUCCEEDED,
    Delivered,
    Resumed,
    after_child,
    after_timer,
    at_last,
    child_cancelled,
    completed,
    continued,
    described,
    ended_by,
    throwable,
    voids,
)
from stepwell_runtime.core.outcomes import Outcome as Outcome
from stepwell_runtime.core.rollback import register_own_undo
from stepwell_runtime.core.scopes import Unwinding, home
from stepwell_runtime.core.talking import Talk
from stepwell_runtime.core.undo import Undo, UndoStack
from stepwell_runtime.definitions import StepDefinition
from stepwell_runtime.errors import Cancelled, ContinueAsNew, Diverged, NotDurable
from stepwell_runtime.scope import RunFacts, current

MOST_REFUSED = 100
FAILURES_KEPT = 64


class Execution:
    """One run's code, standing wherever its journal has brought it."""

    __slots__ = (
        "_context",
        "_detached",
        "_ended",
        "_failures",
        "_ready",
        "_refused",
        "_signals",
        "_talk",
        "_undo_stack",
        "cancel_name",
        "cancel_reason",
        "closing",
        "codec",
        "deadlines",
        "facts",
        "failure",
        "generators",
        "guard",
        "linked",
        "live",
        "main",
        "main_outcome",
        "marks",
        "now",
        "opened",
        "ops",
        "other_arguments",
        "outcome",
        "replaying",
        "resumed",
        "rolled_back",
        "rolling_back",
        "said",
        "seed",
        "seq",
        "stuck",
        "swallowed",
        "unwindings",
        "unwound",
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
        guard: GuardLoop,
    ) -> None:
        self.facts, self.seed, self.now, self.codec = facts, seed, now, codec
        self.replaying = False
        self.closing = False
        self.stuck: Exception | None = None
        self.outcome: Outcome | None = None
        self.rolling_back = False
        self.rolled_back = False
        self.failure = b""  # what began the rollback, as it was stored
        self.resumed = 0  # how often the rollback was resumed
        self._undo_stack: UndoStack | None = None
        self.ops: dict[str, Op] = {}
        self.deadlines: dict[str, Deadline] = {}  # of blocks, by path
        self.unwindings: list[Unwinding] = []  # those that wait for branches
        self.unwound = False  # undos of a scope have run
        self.opened: list[Op] = []
        self.withdrawn: list[Op] = []
        self.seq = 0
        self.other_arguments: list[Op] = []  # replayed steps that were recorded with others
        self.zombies: list[object] = []
        self._ended: dict[str, Delivered | None] = {}  # by path; None: without a record
        self._ready: deque[tuple[Branch, Any, BaseException | None]] | None = None
        self._signals: Signals | None = None
        self._detached: DetachedChildren | None = None
        self.linked: list[str] | None = None  # detached children that are cancelled with the run
        self._talk: Talk | None = None
        self.said: Talk | None = None  # set while something said waits to be written
        self._failures: deque[tuple[int, BaseException]] | None = None
        self.cancel_name: str | None = None  # "cancel" or "deadline"
        self.cancel_reason = b""
        self.main_outcome: Outcome | None = None
        self.marks: Marks | None = None  # those of its journal, and made for the first one
        self.swallowed = 0
        self._refused = 0
        self.generators: list[AsyncGenerator[Any, Any]] | None = None
        self.guard = guard
        self._context = context
        self.main = Branch(self, "", main(), context, None, 0, exempt=False)
        context.run(current.set, self.main)
        self.live = {self.main: None}

    # --- what the driver says ---

    def begin(self) -> None:
        """Run the code to its first durable operation."""
        self._drive(self.main, None, None)

    def deliver(self, record: Record) -> None:
        """Deliver the next journal record and run all branches until they block."""
        if self.stuck is not None:
            return
        self.seq = record.seq + 1
        if record.at > self.now:
            self.now = record.at
        op = self.ops.get(record.path)
        try:
            if op is not None:
                branch = op.branch
                value, error = self._outcome(op, record)
            else:
                deliver_to_run(self, record)
                if not self._ready:
                    return
                branch, value, error = self._ready.popleft()
        except (Diverged, DecodingError, NotDurable) as misfit:
            self.stuck = misfit
            return
        self._drive(branch, value, error)
        error = None  # its traceback may hold this frame, which would be a cycle

    def take_opened(self) -> list[Op]:
        """Return the operations asked for since the last call that still want an outcome."""
        opened, self.opened = self.opened, []
        return [op for op in opened if op.state is not ENDED]

    def take_withdrawn(self) -> list[Op]:
        """Return what ended without a record of its own, or is settling, since the last call."""
        withdrawn, self.withdrawn = self.withdrawn, []
        return withdrawn

    def was_asked(self, path: str) -> bool:
        """Whether the code has asked for the operation at `path`, be it open or ended."""
        return path in self.ops or path in self._ended or path in self.deadlines

    @property
    def finished(self) -> bool:
        """Nothing more will be asked for, rollback included."""
        return self.outcome is not None and (self.rolled_back or not self.wants_rollback)

    @property
    def wants_rollback(self) -> bool:
        outcome, undos = self.outcome, self._undo_stack
        return (
            outcome is not None
            and outcome.verdict not in ("completed", "continued")
            and undos is not None
            and undos.wanted
        )

    @property
    def undos(self) -> list[Undo]:
        """Every undo that was registered, oldest first."""
        return [] if self._undo_stack is None else self._undo_stack.all

    @property
    def undo_errors(self) -> list[BaseException]:
        return [] if self._undo_stack is None else self._undo_stack.errors

    @property
    def unread_signals(self) -> int:
        talk = self._talk
        unread = 0 if self._signals is None else self._signals.unread
        return unread if talk is None else unread + talk.unread

    @property
    def left(self) -> list[tuple[int, str, int]]:
        """What nobody has taken: kind in the inbox, name, how many."""
        signals = () if self._signals is None else self._signals.left()
        asked = () if self._talk is None else self._talk.left()
        return [(int(InboxKind.SIGNAL), *one) for one in signals] + [
            (int(InboxKind.QUESTION), *one) for one in asked
        ]

    def waits_for(self) -> list[Op]:
        return list(self.ops.values())

    @property
    def undone_for_good(self) -> bool:
        """Whether a retry from what failed the run would repeat work that a scope has undone."""
        if not self.unwound:
            return False
        voided = set(self.retry_voids())
        undos = [one for path, one in self._ended.items() if path.startswith("~")]
        return any(one is not None and one[0] in voided for one in undos)

    def retry_voids(self) -> list[int]:
        """Return the seqs to void so that the run goes on from the operation that failed it.

        Void are that operation's record and the records of everything asked for after it.
        """
        outcome = self.outcome
        if outcome is None or outcome.error is None:
            return []
        delivered = [one for one in self._ended.values() if one is not None]
        return voids(outcome.error, self._failures or (), delivered)

    # --- delivery ---

    def _outcome(self, op: Op, record: Record) -> Resumed:
        """Return what the branch is resumed with that waits for this record, and end its wait."""
        kind = record.kind
        if kind not in FITTING.get(op.kind, ()) or record.name != op.name:
            raise Diverged(op.path, described(record), f"{op.kind} {op.name!r}")
        if record.digest and isinstance(op, CallOp) and record.digest != op.digest:
            self.other_arguments.append(op)
        cut = False
        error: BaseException | None = None
        if isinstance(op, CallOp) and kind in RETURNED:
            definition = op.definition
            try:
                value = self.codec.read(record.value)
            except Exception:  # noqa: BLE001 - found by its annotation, or refused with a better word
                value = self.codec.decode(
                    record.value, definition.result_type, where=definition.its_result
                )
            if isinstance(definition, StepDefinition) and definition.compensate is not None:
                error = register_own_undo(self, op.branch, definition.compensate, value)
        else:
            # What failed while its branch was being cancelled got no retries: it counts as cut.
            cut = op.state is SETTLING and kind not in SUCCEEDED
            value, error = self._decoded(op, record)
        op.state = ENDED
        del self.ops[op.path]
        self._ended[op.path] = record.seq, op.opened_after, cut
        return value, error

    def _decoded(self, op: Op, record: Record) -> Resumed:
        kind = record.kind
        if kind == RecordKind.TIMER:
            return after_timer(self.codec, op)
        if kind == RecordKind.STARTED:
            child_id = record.value.decode()
            self.detached().started(child_id)
            if isinstance(op, CallOp) and op.options.on_parent_cancel == "cancel":
                link(self, child_id)
            return child_id, None
        if kind == RecordKind.STEP_CUT:
            return None, Cancelled()
        if kind == RecordKind.CHILD_CANCELLED:
            if op.state is SETTLING:
                return None, Cancelled()
            assert isinstance(op, CallOp)
            child = op.options.id or f"{self.facts.id}/{record.path}"
            return None, child_cancelled(self.codec, record, child)
        return None, self.noted(record, throwable(self.codec, record.value))

    def noted(self, record: Record, error: BaseException) -> BaseException:
        """Remember which record brought this error, for a retry from there."""
        if self._failures is None:
            self._failures = deque(maxlen=FAILURES_KEPT)
        self._failures.append((record.seq, error))
        return error

    def signals(self) -> Signals:
        if self._signals is None:
            self._signals = Signals()
        return self._signals

    def talk(self) -> Talk:
        if self._talk is None:
            self._talk = Talk(self)
        return self._talk

    def detached(self) -> DetachedChildren:
        if self._detached is None:
            self._detached = DetachedChildren()
        return self._detached

    def join_outcome(self, op: Op, record: Record) -> Resumed:
        value, error = after_child(self.codec, op, record)
        return value, None if error is None else self.noted(record, error)

    @property
    def forward(self) -> bool:
        """The code has not ended yet."""
        return self.main_outcome is None and not self.rolling_back

    # --- rollback ---

    def register_undo(self, call: CallCommand, branch: Branch) -> Undo:
        """Put a call on the undo stack, with its arguments as they are now."""
        if self.rolling_back:
            return Undo(self.codec, call, 0)
        if call.options.on_parent_cancel is not None:
            raise ValueError(
                f"on_parent_cancel= is for children, and {call.definition.name}(…) is an undo, "
                "which no cancellation interrupts: take it away"
            )
        undo, scope = self.undo_stack().register(self.codec, call), home(branch.scope)
        undo.since = self.seq
        if scope is not None:
            scope.undos.append(undo)
        return undo

    def patched(self, id: str, *, retired: bool) -> bool:
        """Whether the code goes the new way at this patch."""
        if self.marks is None:
            self.marks = Marks()
        return self.marks.answer(id, replaying=self.replaying, retired=retired)

    def marked(self, id: str) -> None:
        """The marker of a patch is durable."""
        if self.marks is None:
            self.marks = Marks()
        self.marks.written(id)

    def undo_stack(self) -> UndoStack:
        if self._undo_stack is None:
            self._undo_stack = UndoStack()
        return self._undo_stack

    def next_undo(self) -> None:
        undo = self.undo_stack().next()
        if undo is None:
            self.rolled_back = True
        else:
            self.run_undo(undo, None)

    def run_undo(self, undo: Undo, unwinding: Unwinding | None) -> None:
        """Ask for what an undo does; `unwinding`: of its scope, None = of the run."""
        index = undo.index
        branch = Branch(self, f"~{index}.", None, self._context, unwinding, index, exempt=True)
        self.live[branch] = None
        path = f"~{index}.{undo.failures}"
        op = call_op(self, branch, undo.call, path, undo.encoded)
        branch.waiting = self.ops[path] = op
        self.opened.append(op)

    # --- running branches ---

    def add_branch(
        self,
        prefix: str,
        code: Coroutine[Any, Any, Any] | CallCommand,
        context: Context,
        group: Group | None,
        index: int,
        *,
        exempt: bool,
    ) -> Branch:
        """Make a branch, in a copy of `context`, and have it run with its next turn."""
        branch = Branch(self, prefix, code, context, group, index, exempt)
        if not isinstance(code, CallCommand):  # of a call, no code runs there that could change it
            branch.context = context.copy()
            branch.context.run(current.set, branch)
        self.live[branch] = None
        self.resume(branch, None, None)
        return branch

    def resume(self, branch: Branch, value: Any, error: BaseException | None) -> None:
        """Have a branch go on with its next turn."""
        if self._ready is None:
            self._ready = deque()
        self._ready.append((branch, value, error))

    def _drive(self, branch: Branch, value: Any, error: BaseException | None) -> None:
        """Run a branch, and whichever can go on after it, until all of them block.

        User code runs with no loop but the guard, and with its async generators in our hands.
        """
        guard = self.guard
        outermost = not guard.inside and guard.enter()
        guard.violation = None
        try:
            while True:
                if not branch.done:
                    self._advance(branch, value, error)
                error = None  # as above
                if not self._ready or self.stuck is not None:
                    return
                branch, value, error = self._ready.popleft()
        finally:
            if outermost:
                guard.leave()
            if guard.generators:
                self.take_generators()

    def take_generators(self) -> None:
        self.generators = [*(self.generators or ()), *self.guard.generators]
        self.guard.generators.clear()

    def _advance(self, branch: Branch, value: Any, error: BaseException | None) -> None:
        branch.waiting = failure = result = command = None
        coroutine = branch.code
        if coroutine is None or isinstance(coroutine, CallCommand):
            self._advance_call(branch, coroutine, value, error)
            return
        try:
            if error is None:
                command = branch.context.run(coroutine.send, value)
            else:
                command = branch.context.run(coroutine.throw, error)
        except StopIteration as stop:
            result = stop.value
        except BaseException as caught:  # noqa: BLE001 - whatever user code raises is its outcome
            failure = caught
        error = None
        violation = self.guard.violation
        if violation is not None:
            self.stuck = violation
        elif command is not None:
            self._ask(branch, command)
            return
        elif failure is None and not is_over(coroutine):
            self.stuck = foreign_await(command)
        else:
            self._branch_ended(branch, result, failure)
        failure = None  # its traceback holds this frame: only the collector would end that cycle

    def _advance_call(
        self, branch: Branch, call: CallCommand | None, value: Any, error: BaseException | None
    ) -> None:
        if call is None or error is not None:
            self._branch_ended(branch, value, error)
        else:
            branch.code = call.handling = None
            self._ask(branch, call)

    def _ask(self, branch: Branch, command: Any) -> None:
        if not isinstance(command, Command):
            self.stuck = foreign_await(command)
            return
        if (
            branch.cancelling
            and not branch.exempt
            and not command.always
            and not is_handling_cancel(command.handling)
        ):
            refuse_cancelled(self, branch, command)
            return
        command.handling = None  # its traceback may hold the frame that holds this command
        path = f"{branch.prefix}{branch.position}"
        branch.position += 1
        if isinstance(command, GroupCommand):
            open_group(self, branch, command, path)
            return
        try:
            if isinstance(command, CallCommand):
                op: Op | None = call_op(self, branch, command, path)
            else:
                op = ask(self, branch, command, path)
        except Exception as error:  # noqa: BLE001 - arguments that cannot be encoded: raised there
            self._ended[path] = None
            self.resume(branch, None, error)
            return
        if op is not None:
            branch.waiting = self.ops[path] = op
            self.opened.append(op)

    def answered(self, branch: Branch, path: str, outcome: Resumed) -> None:
        """Note an operation whose outcome is known when it is asked for."""
        self._ended[path] = None
        self.resume(branch, *outcome)

    def end(self, op: Op, record: Record | None = None) -> None:
        """Note an operation as over, by a record or without."""
        op.state = ENDED
        self.ops.pop(op.path, None)
        self._ended[op.path] = None if record is None else (record.seq, op.opened_after, False)

    def _branch_ended(self, branch: Branch, value: Any, error: BaseException | None) -> None:
        branch.done = True
        del self.live[branch]
        group = branch.group
        if isinstance(group, Unwinding):
            group.undone(self, branch.index, error)
        elif group is not None:
            branch_of_group_ended(self, group, branch, value, error)
        elif branch is self.main:
            self.main_outcome = (
                completed(self.codec, value, self.facts.workflow)
                if error is None
                else continued(error)
                if isinstance(error, ContinueAsNew) and self.cancel_name is None
                else ended_by(error, self.cancel_name, self.facts.id)
            )
        elif self.rolling_back:
            self.undo_stack().failed(branch.index, error)
            self.next_undo()
        for unwinding in tuple(self.unwindings):
            unwinding.go_on(self)
        if self.outcome is None and self.main_outcome is not None and not self.live:
            # While the rest of a race ended, undos may have been registered, and a cancel come.
            undos = any(undo.stands for undo in self.undos)
            self.outcome = at_last(self.main_outcome, undos, self.cancel_name, self.facts.id)
        branch.unlink()

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
        if self.live or self.generators:
            close_all(self)
        for branch in self.live:
            branch.unlink()
        self.live.clear()
        self.generators = self._ready = None

    def forget(self) -> None:
        """Drop all errors, once closed.

        They hold the frames that they went through, which hold this: cycles, all of them.
        """
        self._failures = self.outcome = self.main_outcome = self.stuck = None
        self._undo_stack = self._talk = self.said = None
