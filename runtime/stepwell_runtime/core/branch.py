"""Branches of a workflow, the operations they wait for, and the groups they belong to."""

from __future__ import annotations

import inspect
import random
import uuid
from collections.abc import Awaitable, Coroutine
from contextvars import Context
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from stepwell_runtime.core.commands import CallCommand, Command, GroupCommand, UnwindCommand
from stepwell_runtime.core.continuing import begin_anew
from stepwell_runtime.core.scopes import UndoScope, Unwinding, enter_scope, leave_scope
from stepwell_runtime.definitions import CallOptions, Definition
from stepwell_runtime.errors import Cancelled, DeadlineExceeded
from stepwell_runtime.launch import Arguments
from stepwell_runtime.scope import RunFacts, UndoEntry

if TYPE_CHECKING:
    from stepwell_runtime.core.deadlines import Deadline
    from stepwell_runtime.core.execution import Execution


class OpState(Enum):
    OPEN = "open"
    SETTLING = "settling"  # its branch is being cancelled, but it must reach an outcome first
    ENDED = "ended"  # its outcome was delivered, or it was withdrawn: later records are ignored


OPEN, SETTLING, ENDED = OpState
"""The members, for code that runs at every step: to find one through its class costs much more."""


class Op(msgspec.Struct, eq=False):
    """One operation that a branch waits for."""

    path: str
    kind: str
    name: str
    command: Command
    branch: Branch
    opened_after: int
    due: float | None = None
    state: OpState = OPEN


class CallOp(Op, kw_only=True, eq=False):
    """An operation that executes a decorated function.

    `timeout`: seconds of one attempt of a step; None = no limit.
    """

    args: Arguments
    definition: Definition
    digest: int
    options: CallOptions
    timeout: float | None


class Branch:
    """One line of workflow code: the main one, an argument of `parallel` or `race`, or an undo.

    Where it is no more than one call, that is made for it: `code` is the call then, and None once
    it was made. Of an undo it is None from the beginning.
    """

    __slots__ = (
        "_chance",
        "_uuids",
        "cancelling",
        "closing",
        "code",
        "context",
        "deadlines",
        "done",
        "doomed",
        "execution",
        "exempt",
        "group",
        "index",
        "position",
        "prefix",
        "scope",
        "waiting",
    )

    def __init__(
        self,
        execution: Execution,
        prefix: str,
        code: Coroutine[Any, Any, Any] | CallCommand | None,
        context: Context,
        group: Group | Unwinding | None,
        index: int,
        exempt: bool,
    ) -> None:
        self.execution, self.prefix, self.context, self.code = execution, prefix, context, code
        self.group, self.index, self.exempt = group, index, exempt
        self.position = 0
        self.waiting: Op | Group | Unwinding | None = None
        self.scope: UndoScope | None = None  # None: the run
        self.cancelling = self.closing = self.done = False
        self.doomed = False  # cancelled for more than the rest of a block
        self.deadlines: list[Deadline] | None = None  # of the blocks that it is in
        self._chance: random.Random | None = None
        self._uuids: random.Random | None = None

    def unlink(self) -> None:
        """Drop what holds this branch in turn, so that it goes without the garbage collector."""
        del self.execution, self.context
        self.code = self.group = self.waiting = self.scope = self.deadlines = None
        self.closing = True

    # --- the scope that user code sees ---

    @property
    def facts(self) -> RunFacts:
        return self.execution.facts

    @property
    def replaying(self) -> bool:
        return self.execution.replaying

    def refuse(self) -> None:
        self.execution.refuse()

    def now(self) -> float:
        return self.execution.now

    def random(self) -> random.Random:
        if self._chance is None:
            self._chance = random.Random(f"{self.execution.seed}/{self.prefix}")
        return self._chance

    def uuid4(self) -> uuid.UUID:
        if self._uuids is None:
            self._uuids = random.Random(f"{self.execution.seed}/{self.prefix}/uuid")
        return uuid.UUID(int=self._uuids.getrandbits(128), version=4)

    def patched(self, id: str, *, retired: bool) -> bool:
        return self.execution.patched(id, retired=retired)

    def say(self, kind: int, name: str, value: object) -> None:
        self.execution.talk().say(kind, name, value)

    def compensate(self, call: CallCommand) -> UndoEntry:
        return self.execution.register_undo(call, self)

    def continue_as_new(self, call: CallCommand) -> NoReturn:
        begin_anew(self.execution, call)

    def enter_undo_scope(self) -> UndoScope:
        return enter_scope(self)

    def leave_undo_scope(self, scope: UndoScope, *, failed: bool) -> UnwindCommand | None:
        return leave_scope(self, scope, failed=failed)


class Group:
    """The branches of one `parallel` or `race`, and how they ended."""

    __slots__ = (
        "branches",
        "command",
        "decided",
        "failure",
        "live",
        "outcomes",
        "parent",
        "path",
        "started",
        "was_cancelled",
    )

    def __init__(self, path: str, command: GroupCommand, parent: Branch) -> None:
        self.path, self.command, self.parent = path, command, parent
        self.branches: list[Branch] = []
        self.outcomes: list[Any] = [None] * len(command.branches)
        self.started = 0
        self.live = 0
        self.failure: BaseException | None = None
        self.was_cancelled = False
        self.decided = False  # the parent has been resumed, or nothing more may start

    @property
    def room(self) -> bool:
        limit = self.command.limit
        return self.started < len(self.command.branches) and (limit is None or self.live < limit)

    def drop_unstarted(self) -> None:
        """Close the coroutines of branches that will never run.

        That Python does not warn of them.
        """
        for awaitable in self.command.branches[self.started :]:
            close = getattr(awaitable, "close", None)
            if close is not None:
                close()
        self.started = len(self.command.branches)


async def awaiting(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def code_of(awaitable: Awaitable[Any]) -> Coroutine[Any, Any, Any] | CallCommand:
    """Return what a branch runs for something that may be awaited."""
    if isinstance(awaitable, CallCommand):
        # one that is left to itself is more than one operation
        return awaitable if awaitable.options.on_parent_cancel is None else awaiting(awaitable)
    if inspect.iscoroutine(awaitable):
        return awaitable
    return awaiting(awaitable)


def is_handling_cancel(error: BaseException | None) -> bool:
    """Whether `error`, or one that it came from, is a cancellation."""
    seen: set[int] = set()
    pending = [error]
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        if isinstance(one, (Cancelled, GeneratorExit)):
            return True
        seen.add(id(one))
        context = one.__context__
        if isinstance(one, DeadlineExceeded) and isinstance(context, Cancelled):
            context = context.__context__  # what a deadline has cancelled ended with its block
        pending += (one.__cause__, context)
    return False
