"""The log of all side effects, as the test reads it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.crash.flows import Effect


class Effects:
    """One line for each execution of a step, in the order in which they began."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.touch()
        self._counted = self._counted_to = 0

    def count(self) -> int:
        """Return how many there are by now; only what is new is read."""
        with self.file.open("rb") as log:
            log.seek(self._counted_to)
            new = log.read()
        self._counted_to += len(new)
        self._counted += new.count(b"\n")
        return self._counted

    def all(self) -> list[Effect]:
        *lines, _ = self.file.read_bytes().split(b"\n")  # the last is being written
        return [msgspec.json.decode(line, type=Effect) for line in lines]
