"""Detached children that are asked to cancel when their run is cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stepwell_runtime.core.branch import ENDED, Op
from stepwell_runtime.core.commands import JoinCommand

if TYPE_CHECKING:
    from stepwell_runtime.core.execution import Execution

LINKED: Final = "linked"
"""The kind of an operation that stands for such a child among those that are withdrawn."""


def link(execution: Execution, child: str) -> None:
    """Note a child that exists by now; the run may have been cancelled before."""
    if execution.linked is None:
        execution.linked = []
    execution.linked.append(child)
    if execution.cancel_name is not None:
        _withdraw(execution, child)


def cancel_linked(execution: Execution) -> None:
    """The run is cancelled. Said again after a crash, which changes nothing."""
    for child in execution.linked or ():
        _withdraw(execution, child)


def _withdraw(execution: Execution, child: str) -> None:
    op = Op("", LINKED, child, JoinCommand(child, Any), execution.main, execution.seq)
    op.state = ENDED
    execution.withdrawn.append(op)
