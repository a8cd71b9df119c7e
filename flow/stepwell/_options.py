"""Checks of what users pass as options; each refuses with what is allowed."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from stepwell_runtime.definitions import Retry, Seconds, seconds

C = TypeVar("C", bound=str)
LARGEST = 2**63 - 1


def positive_seconds(value: Seconds | None, what: str, none: str = "") -> float | None:
    """Return `value` in seconds; refuse what is not greater than zero. None stays None.

    `none`: what None means there, as that may be what was meant.
    """
    if value is None:
        return None
    number = seconds(value, f"{what}=")
    if number <= 0:
        hint = f"; None means {none}" if none else ""
        raise ValueError(f"{what}= must be greater than 0 seconds, not {value!r}{hint}")
    return number


def span(value: Seconds | None, what: str) -> float | None:
    return None if value is None else seconds(value, f"{what}=")


def wall_time(value: datetime, what: str) -> float:
    """Return an aware datetime as seconds since the epoch."""
    given: Any = value
    if not isinstance(given, datetime):
        raise TypeError(f"{what} takes an aware datetime, not {value!r}")
    if given.utcoffset() is None:
        raise ValueError(
            f"{what} takes an aware datetime; {value!r} has no time zone: "
            "add tzinfo=UTC or another zone"
        )
    return given.timestamp()


def start_time(delay: Seconds | None, at: datetime | None) -> dict[str, float | None]:
    """Return the options `delay` and `at`, of which at most one may be given."""
    if delay is not None and at is not None:
        raise ValueError("delay= and at= both say when to start: give one of them")
    return {"delay": span(delay, "delay"), "at": None if at is None else wall_time(at, "at=")}


def text(value: str | None, what: str, longest: int = 255) -> str | None:
    """Return `value`: a printable string of 1 to `longest` characters, or None."""
    given: Any = value
    if given is None:
        return None
    if not isinstance(given, str):
        raise TypeError(f"{what}= takes a string, not {value!r}")
    if not given or len(given) > longest or not given.isprintable():
        raise ValueError(f"{what}= takes 1 to {longest} printable characters, not {given[:300]!r}")
    return given


def run_id(value: str, what: str = "the id of a run") -> str:
    """Return `value`, a string: what is none would not get through to a server."""
    given: Any = value
    if not isinstance(given, str):
        hint = "; write run.id" if isinstance(getattr(given, "id", None), str) else ""
        raise TypeError(f"{what} is a string, not {value!r}{hint}")
    return given


def asked(id: str, reason: str, actor: str) -> None:
    """Check what is said of a run on behalf of a person."""
    run_id(id)
    for given, what in ((reason, "reason="), (actor, "actor=")):
        run_id(given, what)


def whole(value: int | None, what: str, least: int, most: int = LARGEST) -> int | None:
    given: Any = value
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"{what}= takes a whole number, not {value!r}")
    if not least <= given <= most:
        raise ValueError(f"{what}= must be from {least} to {most}, not {value!r}")
    return given


def priority(value: int | None) -> int | None:
    return whole(value, "priority", -(2**31), 2**31 - 1)


def retry(value: Retry | None) -> Retry | None:
    given: Any = value
    if given is not None and not isinstance(given, Retry):
        hint = f": write Retry(attempts={value!r})" if isinstance(given, int) else ""
        raise TypeError(f"retry= takes a Retry, not {value!r}{hint}")
    return given


def one_of(value: C, what: str, allowed: tuple[str, ...]) -> C:
    if value not in allowed:
        *others, last = map(repr, allowed)
        words = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"{what}= must be {words}, not {value!r}")
    return value
