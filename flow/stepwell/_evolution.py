"""Changing the code of workflows that are running."""

from __future__ import annotations

from typing import Any

from stepwell import _options as check
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
