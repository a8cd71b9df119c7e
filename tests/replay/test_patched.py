"""Where code was patched, a run goes one way, and the same way at every replay."""

from __future__ import annotations

import pytest

from stepwell import OutsideWorkflow, parallel, patched, sleep
from stepwell_runtime.errors import Diverged
from tests.replay.driver import Code, Drive
from tests.replay.steps import a, b, c


async def before() -> str:
    await a()
    await b()
    return "old"


async def after() -> str:
    await a()
    if patched("new"):
        await c()
        return "new"
    await b()
    return "old"


async def later() -> str:
    await a()
    patched("new", retired=True)
    await c()
    return "new"


async def at_last() -> str:
    await a()
    await c()
    return "new"


def test_a_run_that_gets_there_first_goes_the_new_way_for_ever(drive: Drive) -> None:
    run = drive(after)
    run.returns("0")
    assert run.open == {"1": "c"}
    assert run.marks() == ["new"]
    run.returns("1")
    assert run.result == "new"
    assert run.replayed().result == "new"
    assert run.replayed().marks() == []
    assert run.replayed(later).result == "new"
    assert run.replayed(at_last).result == "new"


@pytest.mark.parametrize("way", [before, after])
def test_a_run_that_has_passed_goes_the_old_way_for_ever(drive: Drive, way: Code) -> None:
    run = drive(before)
    run.returns("0")
    again = run.replayed(after)
    assert again.open == {"1": "b"}
    assert again.marks() == []
    again.returns("1")
    assert again.result == "old"
    assert again.replayed(way).result == "old"


def test_a_marker_that_did_not_become_durable_leaves_the_old_way(drive: Drive) -> None:
    run = drive(after)
    run.returns("0")
    assert run.replayed().open == {"1": "b"}


def test_once_the_old_way_is_gone_a_run_that_needs_it_is_stuck(drive: Drive) -> None:
    run = drive(before)
    run.returns("0")
    run.returns("1")
    assert isinstance(run.replayed(later).stuck, Diverged)


def test_a_run_of_the_code_without_the_old_way_can_be_taken_by_the_code_before_it(
    drive: Drive,
) -> None:
    run = drive(later)
    run.returns("0")
    assert run.marks() == ["new"]
    run.returns("1")
    assert run.replayed(after).result == "new"


async def loops() -> list[bool]:
    answers: list[bool] = []
    for _ in range(3):
        answers.append(patched("loop"))
        await sleep(1)
    return answers


def test_the_answer_is_the_same_wherever_one_run_asks(drive: Drive) -> None:
    run = drive(loops)
    run.is_due("0")
    again = run.replayed()
    for path in ("1", "2"):
        again.is_due(path)
    assert again.result == [False, False, False]
    marked = drive(loops)
    assert marked.marks() == ["loop"]
    for path in ("0", "1", "2"):
        marked.is_due(path)
    assert marked.result == [True, True, True]
    assert marked.replayed().result == [True, True, True]


async def two_changes() -> tuple[bool, bool]:
    async def branch(id: str) -> bool:
        await a()
        return patched(id)

    first, second = await parallel(branch("one"), branch("two"))
    return first, second


def test_each_change_has_an_answer_of_its_own(drive: Drive) -> None:
    run = drive(two_changes)
    run.returns("0.0.0")
    again = run.replayed()
    again.returns("0.1.0")
    assert again.marks() == ["two"]
    assert again.result == (False, True)
    assert again.replayed().result == (False, True)


def test_outside_of_a_workflow_it_is_refused() -> None:
    with pytest.raises(OutsideWorkflow, match=r"patched\(\)"):
        patched("new")


@pytest.mark.parametrize(("id", "error"), [("", ValueError), (None, TypeError), (3, TypeError)])
def test_an_id_that_is_none_is_refused(drive: Drive, id: object, error: type[Exception]) -> None:
    async def code() -> None:
        patched(id)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    assert isinstance(drive(code).error, error)
