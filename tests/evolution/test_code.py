"""Runs say with which code they were started, and nothing depends on it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stepwell import Stepwell, step, task, workflow
from stepwell_runtime.code import fingerprint
from tests.behaviour.stage import LONG

pytestmark = pytest.mark.anyio
Code = Callable[[], Coroutine[Any, Any, Any]]


@step
async def work(number: int) -> int:
    return number


@task
async def mail() -> int:
    return 1


@workflow
async def parent() -> int:
    return await child(1) + await mail() + await child(1).with_options(queue="default")


@workflow
async def child(number: int) -> int:
    return await work(number)


async def test_a_workflow_run_has_the_mark_of_its_code_and_a_task_has_none(app: Stepwell) -> None:
    async with app.worker():
        assert await (await app.start(parent(), id="run")).result(timeout=LONG) == 3
        plain = await app.start(child(2).with_options(deadline=60.0))
        assert await plain.result(timeout=LONG) == 2
        await app.start_many([child(3).with_options(id="many")])
        history = await app.history("run")
        codes = {one.name: one.code for one in history.children}
        assert history.run.code == fingerprint(parent.definition.fn)
        assert codes == {"child": fingerprint(child.definition.fn), "mail": None}
        assert (await plain.info()).code == (await app.info("many")).code == codes["child"]


async def test_an_app_may_name_its_build_instead(address: str) -> None:
    durability: Any = None if address.startswith("tcp:") else "process"
    async with Stepwell(
        address, include=[__name__], durability=durability, code="2026.12.1"
    ) as app:
        assert (await (await app.start(parent())).info()).code == "2026.12.1"
    with pytest.raises(ValueError, match="code"):
        Stepwell(address, code="")


def test_a_fingerprint_is_another_only_if_the_code_is() -> None:
    def first(names: frozenset[str] = frozenset()) -> bool:
        return "a" in {"a", "b", "c"}

    def second(names: frozenset[str] = frozenset()) -> bool:
        # with a comment
        return "a" in {"a", "b", "c"}

    def third() -> bool:
        return "a" in {"a", "b", "d"}

    assert fingerprint(first) == fingerprint(second)
    assert fingerprint(first) != fingerprint(third)
    assert fingerprint(print)  # has no code of its own


@pytest.mark.blocking
def test_a_fingerprint_is_the_same_in_each_process() -> None:
    program = (
        "from stepwell_runtime.code import fingerprint\n"
        "print(fingerprint(lambda x: x in {'a', 'b', 'c', 'd', 'e'}))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
