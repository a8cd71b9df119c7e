"""What may be asked for when a run is started, and the checks of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, TypedDict

from stepwell import _options as check
from stepwell._queues import Queue, queue_options
from stepwell_runtime.definitions import CallOptions, Seconds
from stepwell_runtime.launch import checked_id

UNIQUE_WHILE = ("unended", "pending")
AFTER_FAILED = ("fail", "start")
ON_PARENT_CANCEL = ("cancel", "leave")
MOST_AWAITED = 10_000


class Identified(Protocol):
    """A handle of a run."""

    @property
    def id(self) -> str: ...


class StartOptions(TypedDict, total=False):
    """How a run is started; what is not given, or None, is as the decorator says.

    `id`: of the run; None = a new one. `queue`: its name, or a declared one. `priority`: higher
    goes first. `delay`: seconds from now, or `at`: an aware datetime: not before. `expires`:
    seconds from now, or an aware datetime: unless it is started by then it ends as expired, and
    never runs. `key`: whose limits, rates and turns in the queue it shares. `unique`: while another
    run of this task or workflow has the key, that one is returned; `unique_while`: it has it until
    it ends ("unended"), or until it begins ("pending"); `unique_for`: for so many seconds, whatever
    becomes of it. `replace`: one that has the key and has not begun gets these arguments and
    options; after one that has begun this one starts once that has ended. `after`: handles or ids
    of runs that must have ended before; `after_failed`: if one of those does not complete, this one
    fails with DependencyFailed ("fail"), or starts all the same ("start").
    """

    id: str | None
    queue: str | Queue | None
    priority: int | None
    delay: Seconds | None
    at: datetime | None
    expires: Seconds | datetime | None
    key: str | None
    unique: str | None
    unique_while: Literal["unended", "pending"] | None
    unique_for: Seconds | None
    replace: bool | None
    after: Sequence[str | Identified] | None
    after_failed: Literal["fail", "start"] | None


def checked(options: StartOptions) -> dict[str, Any]:
    """Return options as fields of CallOptions. Raises TypeError, ValueError."""
    allowed = StartOptions.__annotations__
    for name in options.keys() - allowed.keys():
        # By whichever method it came here: with_options() is also what `start` and `enqueue` use.
        raise TypeError(
            f"unexpected keyword argument {name!r}: a run is started with {', '.join(allowed)}"
        )
    id = options.get("id")
    return {
        "id": None if id is None else checked_id(id),
        **queue_options(options.get("queue")),
        "priority": check.priority(options.get("priority")),
        **check.start_time(options.get("delay"), options.get("at")),
        "expires": expiry(options.get("expires")),
        "key": check.text(options.get("key"), "key"),
        "unique": check.text(options.get("unique"), "unique"),
        "unique_while": _one_of(options.get("unique_while"), "unique_while", UNIQUE_WHILE),
        "unique_for": check.positive_seconds(options.get("unique_for"), "unique_for"),
        "replace": _flag(options.get("replace"), "replace"),
        "after": awaited(options.get("after")),
        "after_failed": _one_of(options.get("after_failed"), "after_failed", AFTER_FAILED),
    }


def parent_cancel(
    value: Literal["cancel", "leave"] | None,
) -> Literal["cancel", "leave"] | None:
    """Return what becomes of a child when its parent is cancelled. Raises ValueError."""
    if value is not None:
        check.one_of(value, "on_parent_cancel", ON_PARENT_CANCEL)
    return value


def consistent(options: CallOptions) -> CallOptions:
    """Return options; refuse those of which one would be ignored."""
    for name in ("unique_while", "unique_for", "replace"):
        if options.unique is None and getattr(options, name):
            raise ValueError(f"{name}= says more about unique=: give that, too")
    if options.unique_for is not None and options.unique_while is not None:
        raise ValueError(
            "unique_for= and unique_while= both say for how long a run has its key: give one of "
            "them"
        )
    if options.unique_for is not None and options.replace:
        raise ValueError(
            "with unique_for= the first call of that time wins, and with replace= the last one "
            "does: give one of them"
        )
    if options.after_failed is not None and not options.after:
        raise ValueError("after_failed= says more about after=: give that, too")
    return options


def expiry(value: Seconds | datetime | None) -> float | datetime | None:
    """Return seconds greater than zero, or an aware datetime."""
    if isinstance(value, datetime):
        check.wall_time(value, "expires=")
        return value
    return check.positive_seconds(value, "expires")


def awaited(runs: Sequence[str | Identified] | None) -> tuple[str, ...] | None:
    """Return the ids of runs that are given by handle or id."""
    given: Any = runs
    if runs is None:
        return None
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(f"after= takes a list of handles or ids of runs, not {given!r}")
    if len(runs) > MOST_AWAITED:
        raise ValueError(f"after= takes at most {MOST_AWAITED} runs, got {len(runs)}")
    return tuple(map(_id_of, runs))


def _id_of(run: object) -> str:
    id = run if isinstance(run, str) else getattr(run, "id", None)
    if not isinstance(id, str) or not id:
        raise TypeError(f"after= takes handles or ids of runs, not {run!r}")
    return id


def _one_of(value: str | None, what: str, allowed: tuple[str, ...]) -> str | None:
    return None if value is None else check.one_of(value, what, allowed)


def _flag(value: bool | None, what: str) -> bool | None:
    given: Any = value
    if given is not None and not isinstance(given, bool):
        raise TypeError(f"{what}= takes True or False, not {given!r}")
    return value
