"""A workflow driven by hand: a test says what ends, arrives or is due, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from stepwell_queue.contract import Record, RecordKind
from stepwell_runtime.codec import Codec
from stepwell_runtime.core.branch import CallOp, Op
from stepwell_runtime.core.execution import Execution, Outcome
from stepwell_runtime.core.guard import GuardLoop
from stepwell_runtime.core.marks import marks_in
from stepwell_runtime.errors import NotDurable
from tests.replay.asked import Events, Watched

codec = Codec()
Code = Callable[..., Coroutine[Any, Any, Any]]
START = 1000.0
DAWN = datetime.fromtimestamp(START, UTC)


@dataclass(frozen=True)
class Facts:
    id: str
    workflow: str
    version: int = 1
    queue: str = "default"
    created_at: datetime = DAWN
    scheduled_at: datetime = DAWN
    deadline: datetime | None = None
    parent_id: str | None = None
    attempt: int = 1


class Driven:
    """One run of workflow code, from its first line; `journal` is what was delivered so far."""

    def __init__(
        self, code: Code, *args: Any, seed: str = "run/1/0", before: Sequence[Record] | None = None
    ) -> None:
        """`before`: the journal that will be delivered again."""
        self._code, self._args, self._seed = code, args, seed
        self.journal: list[Record] = []
        self.now = START
        self._replays: list[Driven] = []
        self.execution: Execution = self._execution()
        if before is not None:
            self.execution.replaying, self.execution.marks = True, marks_in(before)
        self.execution.begin()

    def _execution(self) -> Watched:
        return Watched(
            lambda: self._code(*self._args),
            Facts("run", self._code.__name__),
            seed=self._seed,
            now=START,
            codec=codec,
            context=Context(),
            guard=GuardLoop(),
        )

    def replayed(self, code: Code | None = None) -> Driven:
        """Return a fresh run, of the same code or of `code`, with the same journal delivered."""
        again = Driven(code or self._code, *self._args, seed=self._seed, before=self.journal)
        self._replays.append(again)
        for record in self.journal:
            again.deliver(record)
        again.execution.replaying = False
        return again

    # --- what a test looks at ---

    @property
    def events(self) -> Events:
        assert isinstance(self.execution, Watched)
        return self.execution.events

    @property
    def open(self) -> dict[str, str]:
        """What the code waits for: path -> name."""
        return {path: op.name for path, op in self.execution.ops.items()}

    @property
    def outcome(self) -> Outcome:
        assert self.execution.stuck is None, self.execution.stuck
        assert self.execution.outcome is not None, f"it still waits for {self.open}"
        return self.execution.outcome

    @property
    def result(self) -> Any:
        assert self.outcome.verdict == "completed", self.outcome
        return codec.decode(self.outcome.value)

    @property
    def error(self) -> BaseException:
        assert self.outcome.error is not None
        return self.outcome.error

    @property
    def stuck(self) -> Exception:
        assert self.execution.stuck is not None, f"it is not stuck, but waits for {self.open}"
        return self.execution.stuck

    @property
    def not_durable(self) -> NotDurable:
        assert isinstance(self.stuck, NotDurable), self.stuck
        return self.stuck

    # --- what a test says ---

    def deliver(self, record: Record) -> None:
        self.journal.append(record)
        self.now = max(self.now, record.at)
        self.execution.deliver(record)

    def say(self, kind: RecordKind, path: str = "", name: str = "", value: bytes = b"") -> None:
        self.deliver(Record(len(self.journal), kind, path, name, value, self.now))

    def _op(self, path: str) -> Op:
        op = self.execution.ops.get(path)
        assert op is not None, f"nothing is open at {path}, but {self.open}"
        return op

    def returns(self, path: str, value: Any = None) -> None:
        """The step or child at `path` has returned."""
        op = self._op(path)
        assert isinstance(op, CallOp)
        kind = RecordKind.STEP_OK if op.kind == "step" else RecordKind.CHILD_OK
        self.say(kind, path, op.name, codec.encode(value, "a result"))

    def raises(self, path: str, error: BaseException) -> None:
        op = self._op(path)
        kind = RecordKind.STEP_FAILED if op.kind == "step" else RecordKind.CHILD_FAILED
        self.say(kind, path, op.name, codec.encode_error(error, "a step"))

    def is_cut(self, path: str) -> None:
        """The step or child at `path`, whose branch is cancelled, never ran or was cancelled."""
        op = self._op(path)
        kind = RecordKind.STEP_CUT if op.kind == "step" else RecordKind.CHILD_CANCELLED
        self.say(kind, path, op.name)

    def is_due(self, path: str) -> None:
        """The time of the sleep or wait at `path` has come."""
        block = self.execution.deadlines.get(path)
        op = self._op(path) if block is None else block.op
        assert op.due is not None
        self.now = max(self.now, op.due)
        self.say(RecordKind.TIMER, path, op.name)

    def child_starts(self, path: str, id: str) -> None:
        self.say(RecordKind.STARTED, path, self._op(path).name, id.encode())

    def child_ends(self, id: str, value: Any = None) -> None:
        """A detached child has returned."""
        self.say(RecordKind.CHILD_OK, "", id, codec.encode(value, "a result"))

    def signal(self, name: str, value: Any = None) -> None:
        self.say(RecordKind.SIGNAL, "", name, codec.encode(value, "a signal"))

    def cancel(self, name: str = "cancel") -> None:
        self.say(RecordKind.CANCEL, "", name, codec.encode("why", "a reason"))

    def marks(self) -> list[str]:
        """Journal the markers of the patches that the code has come to, and return their ids."""
        marks = self.execution.marks
        unwritten = [] if marks is None else marks.take_unwritten()
        for id in unwritten:
            self.say(RecordKind.MARK, "", id)
        return unwritten

    def roll_back(self) -> None:
        """Journal the failure that begins the rollback."""
        outcome = self.outcome
        assert self.execution.wants_rollback
        error = codec.encode_error(self.error, "the run")
        self.say(RecordKind.FAILURE, "", outcome.verdict, error)

    def resume_rollback(self) -> None:
        self.say(RecordKind.REOPEN, "", "resume_rollback")

    def close(self) -> None:
        self.execution.close()
        for again in self._replays:
            again.close()


Drive = Callable[..., Driven]
