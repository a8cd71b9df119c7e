"""The engine's own log. What becomes of a run must not depend on whether its log can be written."""

from __future__ import annotations

import logging

import structlog

_log = structlog.get_logger("stepwell")
_fallback = logging.getLogger("stepwell.log")  # never raises


class EngineLog:
    """Says what structlog is configured to say; where that raises, says so to stdlib logging."""

    def info(self, event: str, **values: object) -> None:
        self._say("info", event, values)

    def warning(self, event: str, **values: object) -> None:
        self._say("warning", event, values)

    def error(self, event: str, **values: object) -> None:
        self._say("error", event, values)

    def exception(self, event: str, **values: object) -> None:
        self._say("exception", event, values)

    def _say(self, level: str, event: str, values: dict[str, object]) -> None:
        try:
            getattr(_log, level)(event, **values)
        except Exception:  # noqa: BLE001 - a processor of the user's, or a console that is gone
            _fallback.exception("the log raised at %s", event)


log = EngineLog()
