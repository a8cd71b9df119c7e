"""A run that ends in order to begin anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from stepwell_runtime.core.commands import CallCommand
from stepwell_runtime.errors import ContinueAsNew, DurabilityError
from stepwell_runtime.launch import encode_arguments

if TYPE_CHECKING:
    from stepwell_runtime.core.execution import Execution

UNDOS_STAND = (
    "continue_as_new() would forget the undos that are registered: discard them first, with "
    "undo.discard(), or begin anew where none is"
)


def begin_anew(execution: Execution, call: CallCommand) -> NoReturn:
    """Raise what ends this generation. Raises DurabilityError, SerializationError, too."""
    facts, definition = execution.facts, call.definition
    if (definition.name, definition.version) != (facts.workflow, facts.version):
        raise DurabilityError(
            f"continue_as_new() begins the same workflow anew, which is {facts.workflow!r} "
            f"version {facts.version}, not {definition.name!r} version {definition.version}: "
            "start() another workflow, and return"
        )
    if any(undo.stands for undo in execution.undos):
        raise DurabilityError(UNDOS_STAND)
    raise ContinueAsNew(encode_arguments(execution.codec, definition, call.args, call.kwargs))
