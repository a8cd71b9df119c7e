"""What a branch asks for becomes an operation, or is answered at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell_runtime.core.branch import Branch, CallOp, Op
from stepwell_runtime.core.commands import (
    CallCommand,
    Command,
    DeadlineCommand,
    JoinCommand,
    QuestionCommand,
    SleepCommand,
    StartCommand,
    StepCommand,
    UnwindCommand,
    WaitCommand,
)
from stepwell_runtime.core.deadlines import NAME, enter_deadline
from stepwell_runtime.core.guard import foreign_await
from stepwell_runtime.core.outcomes import after_signal, default_of
from stepwell_runtime.core.scopes import unwind
from stepwell_runtime.errors import DurabilityError
from stepwell_runtime.launch import Arguments, encode_digested

if TYPE_CHECKING:
    from stepwell_runtime.core.execution import Execution


def ask(execution: Execution, branch: Branch, command: Command, path: str) -> Op | None:
    """Return the operation to wait for, or None when the branch can go on at once.

    Raises SerializationError when a default cannot be stored.
    """
    if isinstance(command, SleepCommand):
        op = Op(path, "sleep", "sleep", command, branch, execution.seq)
        op.due = command.until if command.delay is None else execution.now + command.delay
        return op
    if isinstance(command, QuestionCommand):
        return execution.talk().ask(branch, command, path)
    if isinstance(command, WaitCommand):
        return _wait(execution, branch, command, path)
    if isinstance(command, JoinCommand):
        return _join(execution, branch, command, path)
    if isinstance(command, DeadlineCommand):
        enter_deadline(execution, command, Op(path, NAME, NAME, command, branch, execution.seq))
        return None
    if isinstance(command, UnwindCommand):
        unwind(execution, branch, command)
        return None
    execution.stuck = foreign_await(command)
    return None


def call_op(
    execution: Execution,
    branch: Branch,
    command: CallCommand,
    path: str,
    encoded: tuple[Arguments, int] | None = None,
) -> Op:
    """Return the operation that a call becomes. Raises SerializationError.

    `encoded`: its arguments, with their digest, where they are not to be taken as they are now.
    """
    definition, options, timeout = command.definition, command.options, None
    if isinstance(command, StepCommand):
        kind = "remote" if (options.queue or definition.queue) is not None else "step"
        timeout = command.definition.timeout if options.timeout is None else options.timeout
    else:
        kind = "start" if isinstance(command, StartCommand) else "child"
    if encoded is None:
        try:
            encoded = encode_digested(execution.codec, definition, command.args, command.kwargs)
        except Exception as refused:
            refused.add_note(f"at path {path} of run {execution.facts.id!r}")
            raise
    args, digest = encoded
    return CallOp(
        path,
        kind,
        definition.name,
        command,
        branch,
        execution.seq,
        args=args,
        definition=definition,
        digest=digest,
        options=options,
        timeout=timeout,
    )


def _wait(execution: Execution, branch: Branch, command: WaitCommand, path: str) -> Op | None:
    op = Op(path, "wait", command.name, command, branch, execution.seq)
    signals = execution.signals()
    arrived = signals.take(command.name)
    if arrived is not None:
        execution.answered(branch, path, after_signal(execution.codec, op, arrived))
        return None
    if command.timeout is not None:
        op.due = execution.now + command.timeout
        default_of(execution.codec, command)  # one that cannot be stored is refused here
    signals.wait(command.name, op)
    return op


def _join(execution: Execution, branch: Branch, command: JoinCommand, path: str) -> Op | None:
    op = Op(path, "join", command.run_id, command, branch, execution.seq)
    detached = execution.detached()
    if not detached.knows(command.run_id):
        raise DurabilityError(
            f"run {command.run_id!r} was not started by this run: its result cannot be awaited "
            "here; read it in a @step"
        )
    record = detached.end_of(command.run_id)
    if record is not None:
        execution.answered(branch, path, execution.join_outcome(op, record))
        return None
    detached.wait(command.run_id, op)
    return op
