"""Talking to a run from code that blocks."""

from __future__ import annotations

import pytest

from stepwell import (
    Ask,
    AskRefused,
    BlockingStepwell,
    NoValue,
    emit,
    set_value,
    wait_for_ask,
    workflow,
)

price = Ask("price", str, int)


@workflow
async def sells() -> int:
    sold = 0
    while sold < 2:
        set_value("sold", sold)
        question = await wait_for_ask(price)
        if not question.payload:
            question.refuse("of nothing")
            continue
        question.answer(len(question.payload))
        emit("sold", question.payload)
        sold += 1
    return sold


def test_a_thread_asks_and_reads_what_a_run_says(address: str) -> None:
    with BlockingStepwell(address, include=[__name__]) as app, app.worker():
        run = app.start(sells())
        assert run.wait_value("sold", int, until=(0).__eq__, timeout=20) == 0
        assert run.ask(price, "apple", timeout=20) == 5
        with pytest.raises(AskRefused, match="of nothing"):
            run.ask(price, "", timeout=20)
        assert run.ask("price", "pear", id="p", timeout=20) == 4
        assert [(one.offset, one.value) for one in run.stream("sold", str)] == [
            (1, "apple"),
            (2, "pear"),
        ]
        assert (run.result(timeout=20), run.value("sold", int)) == (2, 1)
        assert run.value("missing", int, default=None) is None
        with pytest.raises(NoValue):
            run.value("missing")
        kinds = [getattr(one.event, "kind", None) for one in run.events()]
        assert kinds == ["question"] * 3
