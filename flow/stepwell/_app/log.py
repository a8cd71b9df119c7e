"""The log of the app and its workers."""

from __future__ import annotations

from typing import Any


def log() -> Any:
    """Return the structlog logger `stepwell`; imported on use, for `import stepwell` is cheap."""
    import structlog

    return structlog.get_logger("stepwell")
