"""When schedules tick, over whatever clocks do."""

from __future__ import annotations

import functools
import itertools
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stepwell_runtime.schedules.rules import Cron, Every, Once, Rule, latest

ROME = "Europe/Rome"
DAY, WEEK = 86_400, 604_800
BEGIN, END = 631_152_000, 2_145_916_800  # 1990 to 2038: offsets of whole minutes


def at(text: str, tz: str = ROME) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)).timestamp()


def ticks(rule: Rule, begin: float, end: float) -> list[float]:
    found: list[float] = []
    tick = rule.next_after(begin)
    while tick is not None and tick < end:
        found.append(tick)
        tick = rule.next_after(tick)
    return found


def labels(pattern: str, begin: str, end: str, tz: str = ROME) -> list[str]:
    rule = Cron(pattern, tz)
    return [rule.label(tick) for tick in ticks(rule, at(begin, tz), at(end, tz))]


@functools.cache
def changes(tz: str) -> list[int]:
    """The instants at which the clocks of a zone change."""
    zone, found = ZoneInfo(tz), list[int]()
    offsets = [datetime.fromtimestamp(t, zone).utcoffset() for t in range(BEGIN, END, WEEK)]
    for number, (one, next_) in enumerate(itertools.pairwise(offsets)):
        if one != next_:
            low, high = BEGIN + number * WEEK, BEGIN + (number + 1) * WEEK
            while high - low > 1:
                middle = (low + high) // 2
                before = datetime.fromtimestamp(middle, zone).utcoffset() == one
                low, high = (middle, high) if before else (low, middle)
            found.append(high)
    return found


zones = st.sampled_from(sorted(available_timezones() - {"localtime"}))


@st.composite
def around_a_change(draw: st.DrawFn) -> tuple[str, float]:
    tz = draw(zones)
    moments = changes(tz)
    assume(moments)
    return tz, float(draw(st.sampled_from(moments)))


# --- clocks that change ---


def test_a_daily_time_that_is_skipped_ticks_at_the_first_instant_after_the_gap() -> None:
    assert labels("30 2 * * *", "2026-03-28 00:00", "2026-03-31 00:00") == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_daily_time_that_is_repeated_ticks_at_its_first_occurrence_only() -> None:
    assert labels("30 2 * * *", "2026-10-24 00:00", "2026-10-27 00:00") == [
        "2026-10-24T02:30:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_a_pattern_that_leaves_the_hour_open_goes_by_elapsed_time() -> None:
    spring = ticks(Cron("*/30 * * * *", ROME), at("2026-03-28 23:59"), at("2026-03-29 23:59"))
    autumn = ticks(Cron("*/30 * * * *", ROME), at("2026-10-24 23:59"), at("2026-10-25 23:59"))
    assert len(spring) == 46
    assert len(autumn) == 50
    for found in (spring, autumn):
        assert {later - one for one, later in itertools.pairwise(found)} == {1800.0}


def test_skipped_times_that_fall_on_one_instant_are_one_tick() -> None:
    assert labels("*/15 2,3 * * *", "2026-03-29 00:00", "2026-03-30 00:00") == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-29T03:15:00+02:00",
        "2026-03-29T03:30:00+02:00",
        "2026-03-29T03:45:00+02:00",
    ]


def test_a_pattern_of_every_second_hour_names_twelve_times_of_each_day() -> None:
    for begin, end in (("2026-03-29", "2026-03-30"), ("2026-10-25", "2026-10-26")):
        found = labels("0 */2 * * *", f"{begin} 00:00", f"{end} 00:00")
        assert len(found) == 11  # and the one at midnight, where the search began


def test_a_date_that_does_not_exist_has_no_ticks() -> None:
    assert labels("30 2 * * *", "2011-12-28 12:00", "2012-01-01 00:00", "Pacific/Apia") == [
        "2011-12-29T02:30:00-10:00",
        "2011-12-31T02:30:00+14:00",
    ]


def test_a_midnight_that_is_skipped_ticks_at_one() -> None:
    tz = "America/Sao_Paulo"
    assert labels("0 0 * * *", "2018-11-03 12:00", "2018-11-05 12:00", tz) == [
        "2018-11-04T01:00:00-02:00",
        "2018-11-05T00:00:00-02:00",
    ]


def test_an_hour_that_is_repeated_around_midnight_belongs_to_both_dates() -> None:
    """At 00:01 on Sunday the clocks went back to 23:01 on Saturday."""
    tz, begin, end = "America/St_Johns", "2006-10-28 22:15", "2006-10-29 02:00"
    assert labels("*/30 * * * sun", begin, end, tz) == [
        "2006-10-29T00:00:00-02:30",
        "2006-10-29T00:00:00-03:30",
        "2006-10-29T00:30:00-03:30",
        "2006-10-29T01:00:00-03:30",
        "2006-10-29T01:30:00-03:30",
    ]
    assert labels("30 * * * sat", begin, end, tz) == [
        "2006-10-28T22:30:00-02:30",
        "2006-10-28T23:30:00-02:30",
        "2006-10-28T23:30:00-03:30",
    ]
    assert labels("30 0 * * *", begin, end, tz) == ["2006-10-29T00:30:00-03:30"]


@settings(deadline=None)
@given(around_a_change(), st.integers(0, 23), st.integers(0, 59))
def test_a_daily_time_ticks_once_for_each_date_in_every_zone(
    change: tuple[str, float], hour: int, minute: int
) -> None:
    tz, moment = change
    zone = ZoneInfo(tz)
    hours = range(int(moment) - 4 * DAY, int(moment) + 4 * DAY, 900)
    dates = sorted({datetime.fromtimestamp(t, zone).date() for t in hours})[1:-1]
    rule = Cron(f"{minute} {hour} * * *", tz)
    first = rule.next_after(_start_of(dates[0], zone) - 1)
    found: list[float] = []
    while first is not None and len(found) < len(dates):
        found.append(first)
        first = rule.next_after(first)
    assert first is not None
    assert first > found[-1]
    for day, tick in zip(dates, found, strict=True):
        shown = datetime.fromtimestamp(tick, zone).replace(tzinfo=None, fold=0)
        wanted = datetime.combine(day, time(hour, minute))
        if shown != wanted:  # it was skipped: the instant before shows an earlier time
            earlier = datetime.fromtimestamp(tick - 1, zone).replace(tzinfo=None)
            assert earlier < wanted < shown


def _start_of(day: date, zone: ZoneInfo) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()


FIELDS = st.tuples(
    st.sampled_from(["*", "*/7", "*/15", "0", "59", "10-20", "5,35"]),
    st.sampled_from(["*", "0-23"]),
    st.sampled_from(["*", "1", "31", "L", "*/2"]),
    st.sampled_from(["*", "3,10", "JAN", "*/2"]),
    st.sampled_from(["*", "SUN", "1-5", "6#2", "0L"]),
)


@settings(deadline=None, max_examples=50)
@given(around_a_change(), FIELDS)
def test_an_open_hour_ticks_at_every_minute_that_fits_in_every_zone(
    change: tuple[str, float], fields: tuple[str, ...]
) -> None:
    tz, moment = change
    begin, end = moment - DAY / 8, moment + DAY / 4
    rule, zone = Cron(" ".join(fields), tz), ZoneInfo(tz)
    fitting: list[float] = []
    for t in range(int(begin) // 60 * 60 + 60, int(end), 60):
        shown = datetime.fromtimestamp(t, zone).replace(tzinfo=None, fold=0)
        if next(CronSim(" ".join(fields), shown - timedelta(minutes=1))) == shown:
            fitting.append(float(t))
    assert ticks(rule, begin, end) == fitting


PATTERNS = st.one_of(
    FIELDS.map(" ".join),
    st.tuples(
        st.sampled_from(["0", "*", "*/20", "7,8"]),
        st.sampled_from(["0", "*", "*/15", "30"]),
        st.sampled_from(["2", "0", "*", "1-3", "*/6", "23"]),
        st.sampled_from(["*", "29", "13", "LW"]),
        st.sampled_from(["*", "2", "3,10"]),
        st.sampled_from(["*", "FRI", "SUN"]),
    ).map(" ".join),
)


@settings(deadline=None)
@given(
    zones,
    PATTERNS,
    st.lists(st.floats(0, 4e9), min_size=2, max_size=2).map(sorted),
)
def test_the_next_tick_is_later_and_the_same_from_wherever_before_it(
    tz: str, pattern: str, times: list[float]
) -> None:
    rule = Cron(pattern, tz)
    early, late = times
    first, second = rule.next_after(early), rule.next_after(late)
    assert first is not None
    assert second is not None
    assert early < first <= second
    assert second > late
    assert first == second or first <= late
    assert rule.next_after((early + first) / 2) == first


# --- patterns ---


def test_six_fields_have_the_seconds_first() -> None:
    assert labels("*/20 0 12 * * *", "2026-05-01 00:00", "2026-05-02 00:00") == [
        "2026-05-01T12:00:00+02:00",
        "2026-05-01T12:00:20+02:00",
        "2026-05-01T12:00:40+02:00",
    ]


def test_words_and_last_days_are_understood() -> None:
    assert labels("0 9 L feb *", "2027-01-01 00:00", "2028-12-31 00:00") == [
        "2027-02-28T09:00:00+01:00",
        "2028-02-29T09:00:00+01:00",
    ]
    assert labels("0 9 * * mon#1", "2026-05-01 00:00", "2026-06-30 00:00") == [
        "2026-05-04T09:00:00+02:00",
        "2026-06-01T09:00:00+02:00",
    ]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("0 0 31 2 *", "never comes"),
        ("0 0 30 feb *", "never comes"),
        ("0 0 31 4,6 *", "never comes"),
        ("60 * * * *", "its minute is wrong"),
        ("0 24 * * *", "its hour is wrong"),
        ("0 0 0 * *", "its day-of-month is wrong"),
        ("0 0 * 13 *", "its month is wrong"),
        ("0 0 * * fryday", "its day-of-week is wrong"),
        ("*/0 * * * *", "its minute is wrong"),
        ("99 0 0 * * *", "its second is wrong"),
        ("@daily", "has 1 fields"),
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("* * * * * * *", "has 7 fields"),
        ("1," * 200 + "1 * * * *", "at most 200 characters"),
    ],
)
def test_a_pattern_that_cannot_come_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Cron(pattern)


@pytest.mark.parametrize("tz", ["Mars/Olympus", "", "../etc/passwd", "Europe"])
def test_an_unknown_zone_is_refused(tz: str) -> None:
    with pytest.raises(ValueError, match="is no time zone that is known here"):
        Cron("0 0 * * *", tz)


def test_the_29th_of_february_comes_also_over_a_century_without_it() -> None:
    assert labels("0 0 29 2 *", "2096-03-01 00:00", "2105-01-01 00:00") == [
        "2104-02-29T00:00:00+01:00"
    ]


@pytest.mark.parametrize("rule", [Cron("* * * * *", ROME), Cron("0 2 * * *", ROME), Every(60.0)])
def test_after_the_last_date_nothing_comes(rule: Rule) -> None:
    assert rule.next_after(1e15) is None
    assert rule.next_after(253_402_300_799.0) is None


# --- distances and single ticks ---


@given(st.floats(0.1, 1e8), st.none() | st.floats(0, 4e9), st.floats(0, 4e9))
def test_a_distance_ticks_later_than_asked_and_stays_in_step(
    period: float, start: float | None, t: float
) -> None:
    rule = Every(period, start)
    tick = rule.next_after(t)
    assert tick is not None
    assert tick > t
    following = rule.next_after(tick)
    assert following is not None
    assert following - tick == pytest.approx(period, rel=1e-3)


def test_a_distance_without_a_start_ticks_at_multiples() -> None:
    assert ticks(Every(3600.0), 7200.0, 18_000.0) == [10_800.0, 14_400.0]


def test_a_distance_with_a_start_begins_there() -> None:
    rule = Every(60.0, 1005.0)
    assert rule.first(0.0) == 1005.0
    assert rule.first(1006.0) == 1065.0


@pytest.mark.parametrize("period", [0.0, -1.0, 0.01, float("inf"), float("nan")])
def test_an_absurd_distance_is_refused(period: float) -> None:
    with pytest.raises(ValueError, match="a schedule ticks every"):
        Every(period)


def test_a_distance_of_more_than_a_lifetime_is_refused_as_too_long() -> None:
    with pytest.raises(ValueError, match=r"every 1e\+09 seconds \(31 years\) at the least, not"):
        Every(1e300)
    assert Every(1e9).next_after(1.5e9) == 2e9


def test_a_single_tick_comes_once_and_is_missed_when_it_has_passed() -> None:
    rule = Once(1000.0)
    assert rule.next_after(999.0) == 1000.0
    assert rule.next_after(1000.0) is None
    assert rule.first(2000.0) == 1000.0


# --- what was missed ---


@given(st.integers(1, 50), st.integers(0, 100_000), st.integers(0, 200_000))
def test_the_last_ticks_that_were_missed_are_found(most: int, first: int, span: int) -> None:
    rule = Every(7.0)
    begin = rule.next_after(float(first))
    assert begin is not None
    now = begin + span
    assert latest(rule, begin, now, most) == [begin, *ticks(rule, begin, now + 0.5)][-most:]


def test_a_year_of_missed_seconds_is_not_gone_through() -> None:
    rule = Cron("* * * * * *", ROME)
    now = at("2027-01-01 12:00")
    assert latest(rule, at("2026-01-01 12:00"), now, 3) == [now - 2, now - 1, now]


def test_ticks_in_bursts_are_found_however_far_back_they_are() -> None:
    rule = Cron("*/30 0 2 * * *", ROME)
    found = latest(rule, at("2026-01-01 02:00"), at("2026-03-01 01:00"), 4)
    assert [rule.label(tick)[:19] for tick in found] == [
        "2026-02-27T02:00:00",
        "2026-02-27T02:00:30",
        "2026-02-28T02:00:00",
        "2026-02-28T02:00:30",
    ]
