"""Spans of time as users write them: seconds, or a timedelta."""

from __future__ import annotations

from datetime import timedelta

Seconds = float | timedelta


def seconds(value: object, what: str) -> float:
    """Return `value` in seconds; refuse bool, NaN, infinities and negative spans."""
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:  # an int that is larger than any float
            number = float("inf")
    else:
        raise TypeError(f"{what} takes seconds (a number) or a timedelta, not {value!r}")
    if not 0 <= number < float("inf"):
        raise ValueError(f"{what} must be a finite span >= 0, not {value!r}")
    return number
