"""When a schedule ticks: by a cron pattern, at a fixed distance, or once.

Ticks are wall times in seconds since the epoch. A rule remembers nothing, so that every process
works out the same ticks.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from datetime import datetime, timedelta, tzinfo
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from stepwell_queue.clock import utc

SHORTEST: Final = 0.1
"""Seconds between ticks of `Every`, at least."""
LONGEST: Final = 1e9
"""Seconds between ticks of `Every`, at most: 31 years."""
_LONGEST_PATTERN: Final = 200
_LATEST: Final = 250_000_000_000.0  # the year 9892: later dates have no room for what comes next
_LOOK_AHEAD: Final = 6 * 3600  # seconds in which no clocks change twice
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - what clocks show, wherever they are
_ANY_TIME: Final = datetime(2024, 1, 1)  # noqa: DTZ001 - where the search for a first match begins


class Cron(msgspec.Struct, frozen=True, tag="cron"):
    """A cron pattern of five fields, or of six with seconds first, in a time zone.

    A pattern that leaves the hour open goes by elapsed time: it ticks whenever the clock on the
    wall shows a time that fits, also in an hour that is repeated. One that names its hours names
    times of the day, and each comes exactly once on each date: at its first occurrence if it is
    repeated, at the first instant after the gap if it is skipped. A date that does not exist has no
    ticks, and times that fall on one instant are one tick. Raises ValueError for a pattern that
    cannot be read or never comes, and for an unknown zone.
    """

    pattern: str
    tz: str = "UTC"

    def __post_init__(self) -> None:
        zone_of(self.tz)
        read_pattern(self.pattern)

    def next_after(self, t: float) -> float | None:
        """The first tick later than `t`; None = there is none."""
        if t >= _LATEST:
            return None
        zone = zone_of(self.tz)
        pattern, around_the_clock = read_pattern(self.pattern)
        try:
            if around_the_clock:
                return _next_by_the_clock(pattern, zone, t)
            return _next_of_the_day(pattern, zone, t)
        except OverflowError:
            return None

    def first(self, now: float) -> float | None:
        """The tick with which a schedule begins that is made now."""
        return self.next_after(now)

    def label(self, tick: float) -> str:
        """A tick as part of a run's id: unique, and readable where the schedule is."""
        return datetime.fromtimestamp(tick, zone_of(self.tz)).isoformat()

    def __str__(self) -> str:
        return f"cron {self.pattern!r} in {self.tz}"


class Every(msgspec.Struct, frozen=True, tag="every"):
    """Ticks at a fixed distance of `period` seconds.

    `start`: the first tick; None = at the multiples of the period since the epoch, so that an hour
    is the full hour in UTC.
    """

    period: float
    start: float | None = None

    def __post_init__(self) -> None:
        if self.period < SHORTEST:
            raise ValueError(
                f"a schedule ticks every {SHORTEST} seconds at the most, not every "
                f"{self.period!r} seconds"
            )
        if not self.period <= LONGEST:
            raise ValueError(
                f"a schedule ticks every {LONGEST:g} seconds (31 years) at the least, not every "
                f"{self.period!r} seconds; for a single time give at= alone"
            )

    def next_after(self, t: float) -> float | None:
        """The first tick later than `t`; None = there is none."""
        origin = self.start or 0.0
        if self.start is not None and t < origin:
            return origin
        number = math.floor((t - origin) / self.period)
        tick = origin + number * self.period
        while tick <= t:  # at most twice: the division rounds
            number += 1
            tick = origin + number * self.period
        return tick if tick < _LATEST else None

    def first(self, now: float) -> float | None:
        """The tick with which a schedule begins that is made now."""
        return self.next_after(now)

    def label(self, tick: float) -> str:
        """A tick as part of a run's id: unique, and readable where the schedule is."""
        return utc(tick).isoformat()

    def __str__(self) -> str:
        since = "" if self.start is None else f" from {utc(self.start).isoformat()} on"
        return f"every {self.period:g} s{since}"


class Once(msgspec.Struct, frozen=True, tag="once"):
    """One tick, at a wall time."""

    at: float

    def next_after(self, t: float) -> float | None:
        """The tick, unless it is not later than `t`."""
        return self.at if self.at > t else None

    def first(self, now: float) -> float | None:
        """The tick, also when it has passed: then it is a missed one."""
        return self.at

    def label(self, tick: float) -> str:
        """A tick as part of a run's id: unique, and readable where the schedule is."""
        return utc(tick).isoformat()

    def __str__(self) -> str:
        return f"once at {utc(self.at).isoformat()}"


Rule: TypeAlias = Cron | Every | Once


def latest(rule: Rule, first: float, now: float, most: int) -> list[float]:
    """The last `most` ticks from the tick `first` until `now`, in order."""
    # From ever further back, so that the work is bounded by what is kept, not by what was missed.
    found: deque[float] = deque(maxlen=most)
    span = 1.0
    while True:
        begin = now - span
        found.clear()
        tick = first if begin < first else rule.next_after(begin)
        while tick is not None and tick <= now:
            found.append(tick)
            tick = rule.next_after(tick)
        if len(found) == most or begin < first:
            return list(found)
        span *= 2.0


@functools.cache
def zone_of(name: str) -> tzinfo:
    """Return a time zone. Raises ValueError when there is none of this name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"tz={name!r} is no time zone that is known here: write a name such as "
            "'Europe/Rome' or 'UTC' (a system without a time zone database needs the package "
            "tzdata)"
        ) from None


@functools.lru_cache(1024)
def read_pattern(given: str) -> tuple[str, bool]:
    """Return a pattern with all six fields, and whether it leaves the hour open.

    Raises ValueError, saying why.
    """
    # On use, as whoever has no schedule needs it not.
    from cronsim import CronSim, CronSimError

    fields = given.split()
    if len(given) > _LONGEST_PATTERN or len(fields) not in (5, 6):
        raise ValueError(
            f"cron={given[:_LONGEST_PATTERN]!r} has {len(fields)} fields: a pattern has five "
            "(minute, hour, day of the month, month, day of the week), or six with seconds first, "
            f"in at most {_LONGEST_PATTERN} characters"
        )
    # Always with seconds: for five fields the library has rules of its own when clocks change.
    pattern = " ".join(fields if len(fields) == 6 else ["0", *fields])
    try:
        parsed = CronSim(pattern, _ANY_TIME)
    except CronSimError as error:
        wrong = str(error).removeprefix("Bad ")
        raise ValueError(
            f"cron={given!r} cannot be read, or never comes: its {wrong} is wrong"
        ) from None
    hours = len(parsed.hours)
    if next(parsed, None) is None:
        raise ValueError(f"cron={given!r} never comes: no date fits it")
    return pattern, hours == 24


def _next_by_the_clock(pattern: str, zone: tzinfo, t: float) -> float | None:
    from cronsim import CronSim

    # As long as clocks do not change, what they show is some seconds off UTC. The library only gets
    # times without a zone: with one it may go round and round an hour that is repeated at midnight.
    begin = math.floor(t)
    offset = _offset(zone, begin)
    while True:
        shown = _EPOCH + timedelta(seconds=begin) + offset
        found = next(CronSim(pattern, shown), None)
        if found is None:
            return None
        tick = begin + round((found - shown).total_seconds())
        change = _change(zone, begin + 1, tick, offset)
        if change is None:
            return float(tick)
        begin, offset = change - 1, _offset(zone, change)


def _offset(zone: tzinfo, at: int) -> timedelta:
    return datetime.fromtimestamp(at, zone).utcoffset() or timedelta(0)


def _change(zone: tzinfo, first: int, last: int, offset: timedelta) -> int | None:
    """The first second of these at which the offset is another one; None = there is none."""
    known = first - 1
    while known < last:
        at = min(known + _LOOK_AHEAD, last)
        if _offset(zone, at) != offset:
            return _first_other(zone, known, at, offset)
        known = at
    return None


def _first_other(zone: tzinfo, before: int, after: int, offset: timedelta) -> int:
    """The first second with another offset than before; `after` has one."""
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(zone, middle) == offset:
            before = middle
        else:
            after = middle
    return after


def _next_of_the_day(pattern: str, zone: tzinfo, t: float) -> float | None:
    from cronsim import CronSim

    # Without a zone, so that it names what clocks should show; later times never come earlier.
    shown = datetime.fromtimestamp(math.floor(t), zone).replace(tzinfo=None, fold=0)
    for time in CronSim(pattern, shown):
        tick = _instant(time, zone)
        if tick is not None and tick > t:
            return tick
    return None


def _instant(shown: datetime, zone: tzinfo) -> float | None:
    """When clocks in `zone` first show this time, or jump over it; None = not even the date is."""
    tick = shown.replace(tzinfo=zone).timestamp()
    if datetime.fromtimestamp(tick, zone).replace(tzinfo=None, fold=0) == shown:
        return tick
    # A time in a gap, counted with the offset from before it, is later than the gap, and counted
    # with the other one is earlier.
    earlier = math.floor(shown.replace(tzinfo=zone, fold=1).timestamp())
    after = _first_other(zone, earlier, math.floor(tick), _offset(zone, earlier))
    last, next_ = datetime.fromtimestamp(after - 1, zone), datetime.fromtimestamp(after, zone)
    return None if last.date() < shown.date() < next_.date() else float(after)
