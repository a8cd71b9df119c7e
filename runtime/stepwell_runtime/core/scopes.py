"""Rollback scopes: blocks of workflow code whose undos run when the block fails.

They run where the block ends, before its error goes on. An undo that fails there stays registered:
it is tried again with the undos around it, should those run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell_runtime.core.commands import UnwindCommand
from stepwell_runtime.core.undo import Undo
from stepwell_runtime.errors import DurabilityError

if TYPE_CHECKING:
    from stepwell_runtime.core.branch import Branch
    from stepwell_runtime.core.execution import Execution


class UndoScope:
    """What was registered in one block, and in the branches opened there.

    `parent`: the scope around it; None = the run.
    """

    __slots__ = ("_closed", "parent", "undos")

    def __init__(self, parent: UndoScope | None) -> None:
        self.parent = parent
        self.undos: list[Undo] = []
        self._closed = False

    def close(self) -> None:
        """Hand what is still registered on to the scope around this one."""
        self._closed = True
        around = home(self)
        if around is not None:
            around.undos += self.undos
        self.undos = []

    @property
    def closed(self) -> bool:
        return self._closed


def home(scope: UndoScope | None) -> UndoScope | None:
    """Return where an undo of this scope belongs: branches may outlive the block they came from."""
    while scope is not None and scope.closed:
        scope = scope.parent
    return scope


def enter_scope(branch: Branch) -> UndoScope:
    branch.scope = UndoScope(branch.scope)
    return branch.scope


def leave_scope(branch: Branch, scope: UndoScope, *, failed: bool) -> UnwindCommand | None:
    """Return what has to be awaited before the block is over, if anything has."""
    if branch.scope is not scope:
        raise DurabilityError(
            "rollback_scope() is left in another branch, or before one that was entered in it: "
            "use it with `async with`"
        )
    if failed:
        return UnwindCommand(scope)
    scope.close()
    branch.scope = scope.parent
    return None


class Unwinding:
    """The undos of one scope while they run, newest first, one at a time."""

    __slots__ = ("_begun", "_errors", "_kept", "_left", "branch", "scope")

    def __init__(self, branch: Branch, scope: UndoScope) -> None:
        self.branch, self.scope = branch, scope
        self._errors: list[BaseException] = []
        self._kept: list[Undo] = []
        self._left: list[Undo] = []
        self._begun = False

    def go_on(self, execution: Execution) -> None:
        """Begin once nothing is left that may register more."""
        if self._begun or any(self._is_inside(one) for one in execution.live):
            return
        self._begun = True
        execution.unwindings.remove(self)
        self._left = sorted(self.scope.undos, key=lambda undo: undo.index)
        self._next(execution)

    def _is_inside(self, branch: Branch) -> bool:
        scope = None if branch is self.branch else branch.scope
        while scope is not None and scope is not self.scope:
            scope = scope.parent
        return scope is not None

    def _next(self, execution: Execution) -> None:
        while self._left:
            undo = self._left.pop()
            if undo.stands:
                execution.run_undo(undo, self)
                return
        self.scope.undos = self._kept
        self.scope.close()
        self.branch.scope = self.scope.parent
        execution.resume(self.branch, self._errors, None)

    def undone(self, execution: Execution, index: int, error: BaseException | None) -> None:
        """Go on after the undo of this index."""
        undo = execution.undos[index]
        undo.error = error
        if error is None:
            undo.undone = True
        else:
            undo.failures += 1
            self._kept.append(undo)
            self._errors.append(error)
        self._next(execution)


def unwind(execution: Execution, branch: Branch, command: UnwindCommand) -> None:
    unwinding = Unwinding(branch, command.scope)
    branch.waiting = unwinding
    execution.unwound = True
    execution.unwindings.append(unwinding)
    unwinding.go_on(execution)
