"""The undo stack: what was registered, what is left to run, and what failed."""

from __future__ import annotations

from stepwell_runtime.codec import Codec
from stepwell_runtime.core.commands import CallCommand
from stepwell_runtime.launch import encode_digested


class Undo:
    """One registered undo, with its arguments as they were at registration.

    `encoded`: those, with their digest. Making one raises SerializationError.
    """

    __slots__ = ("call", "discarded", "encoded", "error", "failures", "index", "since", "undone")

    def __init__(self, codec: Codec, call: CallCommand, index: int) -> None:
        self.call, self.index = call, index
        self.encoded = encode_digested(codec, call.definition, call.args, call.kwargs)
        self.discarded = False
        self.since = 0  # how many records there were when it was registered
        self.undone = False  # in a scope
        self.failures = 0  # there
        self.error: BaseException | None = None

    @property
    def stands(self) -> bool:
        """Whether it is still to run, should what is around it fail."""
        return not self.discarded and not self.undone

    def discard(self) -> None:
        self.discarded = True


class UndoStack:
    """Undos in the order of their registration, over all branches; they run in reverse."""

    __slots__ = ("_pending", "all")

    def __init__(self) -> None:
        self.all: list[Undo] = []
        self._pending: list[Undo] = []

    def register(self, codec: Codec, call: CallCommand) -> Undo:
        """Put a call on the stack. Raises SerializationError."""
        undo = Undo(codec, call, len(self.all))
        self.all.append(undo)
        return undo

    @property
    def wanted(self) -> bool:
        return bool(self._standing())

    @property
    def errors(self) -> list[BaseException]:
        return [undo.error for undo in self.all if undo.error is not None and not undo.discarded]

    def _standing(self) -> list[Undo]:
        return [undo for undo in self.all if undo.stands]

    def run_all(self) -> None:
        self._pending = self._standing()

    def run_failed(self) -> None:
        self._pending = [undo for undo in self.all if undo.error is not None and not undo.discarded]

    def next(self) -> Undo | None:
        """Return the newest undo that is still to run; None when there is none."""
        if not self._pending:
            return None
        undo = self._pending.pop()
        undo.error = None
        return undo

    def failed(self, index: int, error: BaseException | None) -> None:
        self.all[index].error = error
