"""A forked child neither uses nor closes what it inherits.

Closing the last connection would remove the log under the parent.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    def after_fork(self) -> None:
        """Close plain descriptors, refuse all use."""
        ...


_open: weakref.WeakSet[Forkable] = weakref.WeakSet()


def watch(store: Forkable) -> None:
    """Have `after_fork` called in every child that is forked while the store is open."""
    _open.add(store)


def forget(store: Forkable) -> None:
    _open.discard(store)


def _in_child() -> None:
    for store in list(_open):
        # never deallocated, so that no connection is closed, not even when the interpreter ends
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))
        store.after_fork()


os.register_at_fork(after_in_child=_in_child)
