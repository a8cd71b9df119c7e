"""The undo stack: what was registered, what is left to run, and what failed."""

from __future__ import annotations

from stepwell_runtime.codec import Codec
from stepwell_runtime.core.commands import CallCommand
from stepwell_runtime.launch import Arguments, encode_digested


class Undo:
    """One registered undo, with its arguments as they were at registration."""

    __slots__ = ("call", "discarded", "encoded", "error", "index")

    def __init__(self, index: int, call: CallCommand, encoded: tuple[Arguments, int]) -> None:
        self.index, self.call, self.encoded = index, call, encoded
        self.discarded = False
        self.error: BaseException | None = None

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
        undo = snapshot(codec, call, len(self.all))
        self.all.append(undo)
        return undo

    @property
    def wanted(self) -> bool:
        return any(not undo.discarded for undo in self.all)

    @property
    def errors(self) -> list[BaseException]:
        return [undo.error for undo in self.all if undo.error is not None]

    def run_all(self) -> None:
        self._pending = [undo for undo in self.all if not undo.discarded]

    def run_failed(self) -> None:
        self._pending = [undo for undo in self.all if undo.error is not None]

    def next(self) -> Undo | None:
        """Return the newest undo that is still to run; None when there is none."""
        if not self._pending:
            return None
        undo = self._pending.pop()
        undo.error = None
        return undo

    def failed(self, index: int, error: BaseException | None) -> None:
        self.all[index].error = error


def snapshot(codec: Codec, call: CallCommand, index: int) -> Undo:
    return Undo(index, call, encode_digested(codec, call.definition, call.args, call.kwargs))
