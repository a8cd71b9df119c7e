"""What attempts say of themselves while they run: gathered in any thread, stored bit by bit."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from stepwell_queue.contract import LogLine, Report
from stepwell_queue.contract.reports import MOST_LINES, MOST_LOG_BYTES, MOST_NOTE, MOST_TEXT
from stepwell_queue.errors import StaleFence
from stepwell_runtime.emissions import SPACING, Emissions, Held

if TYPE_CHECKING:
    pass

MOST_NAME = 255
"""Characters of the name of a value or stream."""

Progress = tuple[float, str, float]  # the fraction, the note, and when


class Voice(Protocol):
    """Takes what attempts say; any thread may call it, and it never waits."""

    def progress(self, fraction: float, note: str) -> None: ...
    def line(self, text: str, fields: str, path: str, attempt: int) -> None: ...
    def item(self, stream: str, value: object, path: str, attempt: int) -> None:
        """Raises SerializationError, StreamFull."""
        ...

    def encoded(self, stream: str, data: bytes, path: str, attempt: int) -> None:
        """Take an item that is encoded, and was allowed for."""
        ...

    def flush(self) -> None:
        """Hand on now what has been gathered: the attempt is about to end."""
        ...


class Holder(Protocol):
    """Who holds the run of an attempt."""

    def reports(self) -> Voice: ...
    def scheduled(self) -> float:
        """Return when the run was to start."""
        ...


class Gathering:
    """What has been said and not handed on: of progress the newest, of lines the last."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._lines: deque[LogLine] = deque()
        self._bytes = 0
        self._asked = False  # for it to be handed on

    def progress(self, fraction: float, note: str) -> None:
        with self._lock:
            self._progress = (fraction, note, self._now())
            asks, self._asked = not self._asked, True
        if asks:
            self._ask()

    def line(self, text: str, fields: str, path: str, attempt: int) -> None:
        with self._lock:
            lines = self._lines
            lines.append(LogLine(self._now(), text, fields, path, attempt))
            self._bytes += _size(lines[-1])
            while len(lines) > MOST_LINES or self._bytes > MOST_LOG_BYTES:
                self._bytes -= _size(lines.popleft())
            asks, self._asked = not self._asked, True
        if asks:
            self._ask()

    def take(self, *, idle: bool) -> tuple[Progress | None, list[LogLine]] | None:
        """Return what there is, and forget it.

        `idle`: who was asked to hand it on does nothing more if there is nothing.
        """
        with self._lock:
            progress, lines = self._progress, list(self._lines)
            if progress is None and not lines:
                self._asked = self._asked and not idle
                return None
            self._progress, self._bytes = None, 0
            self._lines.clear()
            return progress, lines

    def _ask(self) -> None:
        """Have it handed on soon."""
        raise NotImplementedError


def _size(line: LogLine) -> int:
    return len(line.text) + len(line.fields)


class Reports(Gathering):
    """What is said of one held run. One report is on its way at most, and one more when it ends."""

    def __init__(self, held: Held) -> None:
        super().__init__(held.worker.clock.now)
        self._held = held
        self._number = 0
        self._emissions: Emissions | None = None  # made for the first item

    def _ask(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody works there any more
            self._held.worker.loop.call_soon_threadsafe(self._send)

    def _send(self) -> None:
        self._submit(self.take(idle=True), self._stored)

    def item(self, stream: str, value: object, path: str, attempt: int) -> None:
        self._emitting().add(stream, value, path, attempt)

    def encoded(self, stream: str, data: bytes, path: str, attempt: int) -> None:
        self._emitting().put(stream, data, path, attempt)

    def _emitting(self) -> Emissions:
        with self._lock:  # an attempt may have threads of its own
            if self._emissions is None:
                self._emissions = Emissions(self._held)
            return self._emissions

    def flush(self) -> None:
        self._submit(self.take(idle=False), _look_at)
        if self._emissions is not None:
            self._emissions.flush()

    def _submit(
        self,
        said: tuple[Progress | None, list[LogLine]] | None,
        done: Callable[[Exception | None], None],
    ) -> None:
        if said is None:
            return
        progress, lines = said
        fraction, note, at = (None, "", 0.0) if progress is None else progress
        held = self._held
        self._number += 1
        verb = Report(held.run, held.fence, self._number, fraction, note, at, lines)
        try:
            held.worker.store.submit(verb, done)
        except Exception as refused:  # noqa: BLE001 - what a run says must not be what it fails by
            done(refused)

    def _stored(self, answer: Exception | None) -> None:
        _look_at(answer)
        self._held.worker.loop.call_later(SPACING, self._send)


def _look_at(answer: Exception | None) -> None:
    if isinstance(answer, Exception) and not isinstance(answer, StaleFence):
        from stepwell_runtime.log import log  # `import stepwell` does not load structlog

        log.warning("report_lost", error=str(answer))


class Shared:
    """Says the same of several runs that one attempt executes."""

    def __init__(self, voices: Sequence[Voice]) -> None:
        self._voices = voices

    def progress(self, fraction: float, note: str) -> None:
        for voice in self._voices:
            voice.progress(fraction, note)

    def line(self, text: str, fields: str, path: str, attempt: int) -> None:
        for voice in self._voices:
            voice.line(text, fields, path, attempt)

    def item(self, stream: str, value: object, path: str, attempt: int) -> None:
        for voice in self._voices:
            voice.item(stream, value, path, attempt)

    def encoded(self, stream: str, data: bytes, path: str, attempt: int) -> None:
        for voice in self._voices:
            voice.encoded(stream, data, path, attempt)

    def flush(self) -> None:
        for voice in self._voices:
            voice.flush()


def checked_name(name: object, what: str) -> None:
    """Raise TypeError, ValueError if it cannot be the name of a value or stream."""
    if not isinstance(name, str):
        raise TypeError(f"{what} takes a name, not {name!r}")
    if not name or len(name) > MOST_NAME or not name.isprintable():
        raise ValueError(
            f"{what} takes a name of 1 to {MOST_NAME} printable characters, not {name[:300]!r}"
        )


def checked_progress(fraction: object, note: object) -> tuple[float, str]:
    """Return them as they are stored. Raises TypeError, ValueError."""
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise TypeError(f"report() takes a number from 0 to 1, not {fraction!r}")
    if not 0 <= fraction <= 1:  # which NaN is not, either
        raise ValueError(f"report() takes a number from 0 to 1, not {fraction!r}: done / total")
    if not isinstance(note, str):
        raise TypeError(f"report() takes a text as its note, not {note!r}")
    return float(fraction), _cut(note, MOST_NOTE)


def checked_line(text: object, fields: dict[str, object]) -> tuple[str, str]:
    """Return a line and its fields as they are stored. Raises TypeError, ValueError."""
    if not isinstance(text, str):
        raise TypeError(f"log() takes a text, not {text!r}: put values into fields, name=value")
    if not fields:
        return _cut(text, MOST_TEXT), ""
    try:
        shown = _encode({_clean(name): _plain(value) for name, value in fields.items()}).decode()
    except Exception:  # noqa: BLE001 - whatever a value is, a line of the log must not fail by it
        shown = _encode({_clean(name): _shown(value) for name, value in fields.items()}).decode()
    if len(shown) > MOST_TEXT:
        raise ValueError(
            f"the fields of a line of the log take {len(shown)} characters, at most {MOST_TEXT} "
            "are kept: log less of them, or several lines"
        )
    return _cut(text, MOST_TEXT), shown


_encode = msgspec.json.Encoder(enc_hook=lambda value: _shown(value)).encode


def _plain(value: object) -> object:
    return _clean(value) if isinstance(value, str) else value


def _shown(value: object) -> str:
    return _clean(repr(value))


def _clean(text: str) -> str:
    """Return text that can be stored: half of a surrogate pair is written out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _cut(text: str, longest: int) -> str:
    text = _clean(text)
    if len(text) <= longest:
        return text
    tail = f"... ({len(text):,} characters)"
    return text[: longest - len(tail)] + tail
