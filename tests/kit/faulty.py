"""Workflows with a defect that only a crash, or another order, brings to light."""

from __future__ import annotations

from stepwell import (
    Signal,
    compensate,
    parallel,
    race,
    sleep,
    step,
    wait_for_signal,
    workflow,
)

ledger: list[str] = []
seen: list[int] = []
go = Signal("go", int)


@step
async def book(what: str) -> str:
    ledger.append(what)
    return what


@step
async def book_and_count(what: str) -> int:
    """Not idempotent: what it returns depends on how often it was executed."""
    ledger.append(what)
    return len(ledger)


@step
async def cancel_booking(what: str) -> None:
    ledger.append(f"cancel {what}")


@workflow
async def counts_what_is_there() -> int:
    await book("first")
    return await book_and_count("second")


@workflow
async def asks_its_process() -> str:
    """Not deterministic: it goes another way in another process."""
    seen.append(1)
    if len(seen) > 1:
        await cancel_booking("other")
        return "second"
    await book("first")
    return await book("second")


@workflow
async def waits_for_its_process() -> None:
    """Stays where it is when it is replayed."""
    seen.append(1)
    await book("first")
    if len(seen) > 1:
        await wait_for_signal(go)


@workflow
async def last_one_wins() -> str:
    order: list[str] = []

    async def branch(name: str) -> None:
        order.append(await book(name))

    await parallel(branch("a"), branch("b"), branch("c"))
    if order[0] == "c":
        raise LookupError("c was first")
    return "fine"


@workflow
async def books_and_fails() -> None:
    compensate(cancel_booking(await book("hotel")))
    compensate(cancel_booking(await book("flight")))
    raise LookupError("sold out")


@workflow
async def waits_a_while() -> int:
    return (await race(wait_for_signal(go), sleep(30)))[0]
