"""What is logged as an error while nothing but a kill happens is an error."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator

import structlog
from structlog.typing import EventDict

_ERRORS = frozenset(("error", "exception", "critical"))


class _Noting(logging.Handler):
    def __init__(self, complaints: list[object]) -> None:
        super().__init__(logging.ERROR)
        self._complaints = complaints

    def emit(self, record: logging.LogRecord) -> None:
        self._complaints.append(record.getMessage())


@contextlib.contextmanager
def errors_noted(complaints: list[object]) -> Generator[None, None, None]:
    """Add to `complaints` what the runtime and the store log as errors; show no other event."""

    def note(logger: object, method: str, event: EventDict) -> EventDict:
        if method in _ERRORS:
            complaints.append(event)
        raise structlog.DropEvent

    before = structlog.get_config()
    handler, store_log = _Noting(complaints), logging.getLogger("stepwell.store")
    structlog.configure(processors=[note])
    store_log.addHandler(handler)
    try:
        yield
    finally:
        structlog.configure(**before)
        store_log.removeHandler(handler)
