"""Logs go to stderr: stdout holds what was asked for."""

from __future__ import annotations

import logging
import sys

import structlog

LEVELS = ("debug", "info", "warning", "error")


def log_to_stderr(level: str = "warning") -> None:
    """Send all logs to stderr, until the user's own code configures them."""
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S.%f", utc=False),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # Looked up per logger: what stderr is may change, and structlog's own default is stdout.
        logger_factory=lambda *names: structlog.PrintLogger(sys.stderr),
    )
    logging.basicConfig(
        level=number,
        stream=sys.stderr,
        format="%(asctime)s [%(levelname)s] %(name)s: %(message)s",
        force=False,
    )
    logging.getLogger().setLevel(number)
