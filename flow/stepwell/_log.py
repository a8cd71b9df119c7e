"""A logger that knows the run and step, and does not repeat a workflow's lines on replay."""

from __future__ import annotations

from typing import Any

from stepwell_runtime.scope import JobScope, current


class Logger:
    """Logs through structlog, as it is configured, with what runs here bound to every line."""

    __slots__ = ("_name", "_values")

    def __init__(self, name: str | None, values: dict[str, Any]) -> None:
        self._name, self._values = name, values

    def bind(self, **values: Any) -> Logger:
        """Return a logger that adds these values to every line."""
        return Logger(self._name, {**self._values, **values})

    def debug(self, event: str, *args: Any, **values: Any) -> None:
        """Log at level debug."""
        self._log("debug", event, args, values)

    def info(self, event: str, *args: Any, **values: Any) -> None:
        """Log at level info."""
        self._log("info", event, args, values)

    def warning(self, event: str, *args: Any, **values: Any) -> None:
        """Log at level warning."""
        self._log("warning", event, args, values)

    def error(self, event: str, *args: Any, **values: Any) -> None:
        """Log at level error."""
        self._log("error", event, args, values)

    def critical(self, event: str, *args: Any, **values: Any) -> None:
        """Log at level critical."""
        self._log("critical", event, args, values)

    def exception(self, event: str, *args: Any, **values: Any) -> None:
        """Log at level error, with the exception that is being handled."""
        values.setdefault("exc_info", True)
        self._log("error", event, args, values)

    def _log(self, level: str, event: str, args: tuple[Any, ...], values: dict[str, Any]) -> None:
        scope = current.get()
        if scope is None:
            bound: dict[str, Any] = {}
        elif isinstance(scope, JobScope):
            bound = {
                "run": scope.run_id,
                "step": scope.name,
                "path": scope.path,
                "attempt": scope.attempt,
            }
        elif scope.replaying or scope.closing:
            return
        else:
            bound = {
                "run": scope.facts.id,
                "workflow": scope.facts.workflow,
                "attempt": scope.facts.attempt,
            }
        import structlog

        names = () if self._name is None else (self._name,)
        getattr(structlog.get_logger(*names), level)(
            event, *args, **{**bound, **self._values, **values}
        )


def get_logger(name: str | None = None, /, **values: Any) -> Logger:
    """Return a logger for workflows, steps and tasks; `values` are added to every line.

    `name` is handed to structlog.get_logger; None = no name.
    """
    return Logger(name, values)
