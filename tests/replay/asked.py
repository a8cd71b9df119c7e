"""What workflow code asked for, in order, and between which deliveries."""

from __future__ import annotations

from typing import Any, ClassVar

from stepwell_queue.contract import Record
from stepwell_runtime.core.branch import Branch, CallOp
from stepwell_runtime.core.commands import CallCommand, GroupCommand, SleepCommand, WaitCommand
from stepwell_runtime.core.execution import Execution
from stepwell_runtime.core.scopes import Unwinding
from stepwell_runtime.core.undo import Undo
from stepwell_runtime.launch import decode_each

Events = list[tuple[Any, ...]]


class Watched(Execution):
    """An execution that notes every delivery and every command of its code."""

    everything: ClassVar[list[tuple[str, Events]]] = []

    def __init__(self, *args: Any, **options: Any) -> None:
        self.events: Events = []
        super().__init__(*args, **options)
        self.everything.append((self.facts.id, self.events))

    def deliver(self, record: Record) -> None:
        self.events.append(("delivered", record.seq, record.kind, record.path, record.name))
        super().deliver(record)

    def _ask(self, branch: Branch, command: Any) -> None:
        self.events.append(("asked", branch.prefix, branch.position, *described(command)))
        super()._ask(branch, command)

    def run_undo(self, undo: Undo, unwinding: Unwinding | None) -> None:
        already = len(self.opened)
        super().run_undo(undo, unwinding)
        for op in self.opened[already:]:
            assert isinstance(op, CallOp)
            args, _ = decode_each(self.codec, op.definition, op.args, trusted=True)
            word = type(op.command).__name__
            self.events.append(("asked", op.branch.prefix, 0, word, op.name, tuple(args)))


def described(command: Any) -> tuple[Any, ...]:
    word = type(command).__name__
    if isinstance(command, CallCommand):
        return word, command.definition.name, command.args
    if isinstance(command, GroupCommand):
        return word, command.mode, len(command.branches), command.limit
    if isinstance(command, SleepCommand):
        return word, command.delay
    if isinstance(command, WaitCommand):
        return word, command.name, command.timeout
    return (word,)
