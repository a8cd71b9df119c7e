"""The engine's own log. What becomes of a run must not depend on whether its log can be written."""

from __future__ import annotations

import logging

import structlog

_log = structlog.get_logger("stepwell")
_fallback = logging.getLogger("stepwell.log")  # never raises


class EngineLog:
    """Says what structlog is configured to say; where that raises, says so to stdlib logging."""

    def info(self, event: str, **values: object) -> None:
        try:
            _log.info(event, **values)
        except Exception:  # noqa: BLE001 - a processor of the user's, or a console that is gone
            _fallback.exception("the log raised at %s", event)

    def warning(self, event: str, **values: object) -> None:
        try:
            _log.warning(event, **values)
        except Exception:  # noqa: BLE001 - as above
            _fallback.exception("the log raised at %s", event)

    def error(self, event: str, **values: object) -> None:
        try:
            _log.error(event, **values)
        except Exception:  # noqa: BLE001 - as above
            _fallback.exception("the log raised at %s", event)

    def exception(self, event: str, **values: object) -> None:
        try:
            _log.exception(event, **values)
        except Exception:  # noqa: BLE001 - as above
            _fallback.exception("the log raised at %s", event)


log = EngineLog()
