"""What keeps a workflow going for years: changed code, and a journal that begins anew."""

from __future__ import annotations

from typing import Any, NoReturn

from stepwell import _options as check
from stepwell._arguments import described
from stepwell._calls import WorkflowCall
from stepwell._scopes import enter_workflow


def patched(id: str, /, *, retired: bool = False) -> bool:
    """Return True where this run goes the new way, False where it has to go the old one.

    False for runs that may have passed here with the code of before; the same at every replay.
    `id`: 1 to 255 characters, one for each change. With `retired`, once the old way is gone, it is
    always True. Raises OutsideWorkflow.
    """
    scope = enter_workflow("patched()", "steps are not replayed: change them as you like")
    name = check.text(id, "patched() id")
    if name is None:
        raise TypeError("patched() takes the name of the change, such as patched('new-tax')")
    given: Any = retired
    if not isinstance(given, bool):
        raise TypeError(f"patched(retired=…) takes True or False, not {given!r}")
    return scope.patched(name, retired=retired)


def continue_as_new(call: WorkflowCall[Any], /) -> NoReturn:
    """End the workflow here, and begin it anew under the same id with the arguments of `call`.

    Its journal begins anew; signals that nobody took travel along; who waits for the result waits
    for the last of them. Raises OutsideWorkflow; DurabilityError for another workflow, and while
    undos are registered.
    """
    scope = enter_workflow("continue_as_new()", "return, and let the workflow begin anew")
    given: Any = call
    if not isinstance(given, WorkflowCall):
        raise TypeError(f"continue_as_new() takes a call of a workflow, not {described(given)}")
    scope.continue_as_new(call.hand_on())
