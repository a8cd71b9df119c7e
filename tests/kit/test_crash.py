"""A crash behind each write, and a world for each seed: what they find, and what they say of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stepwell import RunCancelled
from stepwell.testing import (
    CancelAt,
    NeverAwaited,
    NothingDue,
    RunOutcome,
    SignalAt,
    TestApp,
    crash_test,
    simulate,
)
from tests.kit import faulty, flows
from tests.kit.faulty import ledger, seen
from tests.kit.flows import Declined, Order, Receipt, approved, charge, checkout, done

pytestmark = pytest.mark.anyio
ORDER = Order("o-1")


def anew(app: TestApp) -> None:
    for outside in (ledger, seen, done):
        outside.clear()


async def test_a_workflow_that_survives_every_crash_is_reported_with_what_it_repeats() -> None:
    report = await crash_test(
        checkout(ORDER),
        signals=[SignalAt(approved, True, after=timedelta(days=1))],
        setup=anew,
        include=[flows],
    )
    assert (report.outcome.status, report.outcome.result) == ("completed", "shipped o-1")
    assert report.crashed_after == tuple(range(1, report.writes))
    assert [(one.name, one.path, one.most) for one in report.repeated] == [
        ("charge", "0", 2),
        ("ship", "2", 2),
    ]
    assert "charge at path 0: up to 2 times, after 1 of" in str(report)


async def test_a_rollback_survives_every_crash() -> None:
    report = await crash_test(faulty.books_and_fails(), setup=anew, include=[faulty])
    outcome = report.outcome
    assert (outcome.status, outcome.rollback) == ("failed", "complete")
    assert isinstance(outcome.error, LookupError)
    assert outcome.undone == ("cancel_booking", "cancel_booking")
    assert [one.path for one in report.repeated] == ["0", "1", "~1.0", "~0.0"]


async def test_a_cancel_survives_every_crash() -> None:
    report = await crash_test(
        checkout(ORDER), signals=[CancelAt(3600, "why")], setup=anew, include=[flows]
    )
    assert isinstance(report.outcome.error, RunCancelled)
    assert report.outcome.undone == ("refund",)


async def test_stubs_go_on_after_a_crash_where_they_were() -> None:
    async def stubbed(app: TestApp) -> None:
        app.stub(charge, outcomes=[ConnectionError, Receipt("second")], takes=5)

    report = await crash_test(checkout(ORDER), setup=stubbed, include=[flows])
    assert isinstance(report.outcome.error, Declined)


async def test_a_limit_spreads_the_crashes_evenly() -> None:
    report = await crash_test(flows.month(ORDER), setup=anew, include=[flows], limit=4)
    assert len(report.crashed_after) == 4
    assert report.crashed_after[-1] == report.writes - 1
    assert "behind 4 (limit=…) of its" in str(report)


async def test_a_step_that_is_not_idempotent_makes_a_difference() -> None:
    with pytest.raises(AssertionError) as caught:
        await crash_test(faulty.counts_what_is_there(), setup=anew, include=[faulty])
    message = str(caught.value)
    assert "after a crash behind write" in message
    assert "(begun last: book at path 0), result is 3, and without a crash 2" in message


async def test_code_that_is_not_deterministic_gets_stuck_and_the_path_is_said() -> None:
    with pytest.raises(AssertionError, match="got stuck") as caught:
        await crash_test(faulty.asks_its_process(), setup=anew, include=[faulty])
    assert "cancel_booking" in str(caught.value)
    assert "path 0" in str(caught.value)


async def test_a_run_that_no_longer_ends_after_a_crash_is_told_from_one_that_does() -> None:
    with pytest.raises(AssertionError, match="behind write.*cannot go on.*signal go"):
        await crash_test(faulty.waits_for_its_process(), setup=anew, include=[faulty])


async def test_a_run_that_never_ends_by_itself_cannot_be_tested() -> None:
    with pytest.raises(NothingDue, match="waits for signal approved"):
        await crash_test(flows.waits_for_ever(), include=[flows])


async def test_a_check_sees_every_outcome() -> None:
    outcomes: list[RunOutcome] = []

    def refuse_the_second(outcome: RunOutcome) -> None:
        outcomes.append(outcome)
        assert len(outcomes) < 2, "too many"

    with pytest.raises(AssertionError, match="too many") as caught:
        await crash_test(checkout(ORDER), check=refuse_the_second, setup=anew, include=[flows])
    assert ["behind write 1 of" in note for note in caught.value.__notes__] == [True]


async def test_a_call_that_is_never_awaited_fails_both() -> None:
    for test in (crash_test, simulate):
        with pytest.raises(NeverAwaited, match=r"flows\.py"):
            await test(flows.forgets(ORDER), include=[flows])


async def test_what_cannot_be_tested_is_refused() -> None:
    with pytest.raises(TypeError, match="the call of a workflow or task"):
        await crash_test(checkout)  # type: ignore[arg-type]  # what is wrong with it
    with pytest.raises(TypeError, match="SignalAt"):
        await crash_test(checkout(ORDER), signals=["approved"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="limit"):
        await crash_test(checkout(ORDER), limit=0)
    with pytest.raises(TypeError, match=r"signal 'approved' takes bool, not 'yes'"):
        await crash_test(
            checkout(ORDER),
            signals=[SignalAt(approved, "yes")],
        )


# --- simulation ---


async def test_a_sound_workflow_ends_in_the_same_way_under_all_seeds() -> None:
    report = await simulate(
        checkout(ORDER), seeds=20, signals=[SignalAt(approved, True)], setup=anew, include=[flows]
    )
    assert (report.seeds, report.outcomes) == (20, {"completed": 20})
    assert report.crashes > 5
    assert str(report).startswith("20 seeds, ")


async def test_an_order_of_branches_that_breaks_the_code_is_found_and_can_be_repeated() -> None:
    with pytest.raises(AssertionError) as caught:
        await simulate(faulty.last_one_wins(), setup=anew, include=[faulty])
    message = str(caught.value)
    seed = int(message.split(":")[0].removeprefix("seed "))
    assert "failed: LookupError('c was first')" in message
    assert "undisturbed: completed" in message
    # Only that two of the branches are slow, or were cut, matters.
    simplest = message.split("the simplest schedule that fails: ")[1].splitlines()[0]
    assert len(simplest.split("; ")) <= 3
    assert f"seeds=[{seed}]" in message
    with pytest.raises(AssertionError) as again:
        await simulate(faulty.last_one_wins(), seeds=[seed], setup=anew, include=[faulty])
    assert str(again.value) == message


async def test_outcomes_may_differ_if_the_test_says_so() -> None:
    ends: list[object] = []
    report = await simulate(
        faulty.waits_a_while(),
        seeds=20,
        signals=[SignalAt(faulty.go, 1)],
        same_outcome=False,
        check=lambda outcome: ends.append(outcome.result),
        include=[faulty],
    )
    assert report.outcomes == {"completed": 20}
    assert set(ends) == {0, 1}


async def test_a_check_that_fails_is_reported_with_its_seed() -> None:
    def early(outcome: RunOutcome) -> None:
        assert outcome.result == 0, "too late"

    with pytest.raises(AssertionError, match=r"(?s)seed \d+: the check failed: too late.*comes af"):
        await simulate(
            faulty.waits_a_while(),
            signals=[SignalAt(faulty.go, 1)],
            check=early,
            include=[faulty],
        )


async def test_a_step_that_is_slower_than_its_timeout_times_out() -> None:
    report = await simulate(
        flows.parent(ORDER),
        seeds=20,
        longest_step=6000.0,
        same_outcome=False,
        setup=anew,
        include=[flows],
    )
    assert "failed StepTimeout" in report.outcomes
