"""The examples with a crash behind each write, and in worlds made of 200 seeds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from examples.checkout import workflow as checkout
from examples.checkout.model import Decision, Order, Receipt, Rejected
from examples.checkout.payments import Payments
from examples.checkout.shop import Shop
from examples.ingest import workflow as ingest
from examples.ingest.index import Index
from examples.reminders import workflow as reminders
from examples.reminders.workflow import Habit, Invoice
from stepwell import Stepwell
from stepwell.testing import RunOutcome, SignalAt, TestApp, crash_test, simulate
from tests.conftest import Scale

# Files are made anew before each run, on the loop.
pytestmark = [pytest.mark.anyio, pytest.mark.blocking]
ORDER = Order("o-1", "Ada", "ada@example.org", "DE", "lamp", 2, Decimal(400), "EUR")
YES, NO = (SignalAt(checkout.decision, Decision(approved, "Grace")) for approved in (True, False))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Outside:
    """The shop's own files, and a payment service that counts an amount once per key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.moved: dict[str, tuple[str, Decimal]] = {}

    def set_up(self, app: TestApp) -> None:
        self.moved.clear()
        (self._folder / "shop.db").unlink(missing_ok=True)
        Shop(self._folder / "shop.db").create({"lamp": 5})

    def answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        kind, key = request.url.path, request.headers["Idempotency-Key"]
        self.moved.setdefault(key, (kind, Decimal(body.get("amount", "0"))))
        return httpx.Response(200)

    @asynccontextmanager
    async def lifespan(self, app: Stepwell) -> AsyncGenerator[None, None]:
        transport = httpx.MockTransport(self.answer)
        async with httpx.AsyncClient(base_url="http://payments", transport=transport) as http:
            shop = Shop(self._folder / "shop.db")
            there = checkout.Outside(shop, Payments(http), self._folder)
            token = checkout.outside.set(there)
            try:
                yield
            finally:
                checkout.outside.reset(token)

    def check(self, outcome: RunOutcome) -> None:
        kinds = Counter(kind for kind, _ in self.moved.values())
        left = Shop(self._folder / "shop.db").stock()["lamp"]
        if outcome.status == "completed":
            assert isinstance(outcome.result, Receipt)
            assert (kinds, left) == ({"/charges": 1}, 3)
        else:
            assert isinstance(outcome.error, Rejected)
            assert (outcome.rollback, outcome.undone) == ("complete", ("refund", "release"))
            assert (kinds, left) == ({"/charges": 1, "/refunds": 1}, 5)


async def test_the_checkout(tmp_path: Path, scale: Scale) -> None:
    outside = Outside(tmp_path)
    for signals in ([YES], [NO]):
        report = await crash_test(
            checkout.checkout(ORDER),
            signals=signals,
            setup=outside.set_up,
            check=outside.check,
            include=[checkout],
            lifespan=outside.lifespan,
        )
        assert {one.name for one in report.repeated} >= {"charge", "reserve"}
    await simulate(
        checkout.checkout(ORDER),
        seeds=scale(200, 2000),
        signals=[NO],
        setup=outside.set_up,
        check=outside.check,
        crashes=1,
        longest_step=0.5,
        include=[checkout],
        lifespan=outside.lifespan,
    )


def opened(index: Index) -> Callable[[Stepwell], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Stepwell) -> AsyncGenerator[None, None]:
        token = ingest.index.set(index)
        try:
            yield
        finally:
            ingest.index.reset(token)

    return lifespan


async def test_the_ingest(tmp_path: Path, scale: Scale) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "one.txt").write_text("one")
    (texts / "two.py").write_text('"""Two."""')
    (texts / "three.txt").write_bytes(b"\xff")
    with closing(Index(tmp_path / "index.db")) as index:

        def empty(app: TestApp) -> None:
            index.forget(index.paths())

        def check(outcome: RunOutcome) -> None:
            # A file that was indexed before a crash counts as unchanged after it.
            assert isinstance(outcome.result, ingest.Report)
            assert outcome.result.files == 3
            assert len(outcome.result.unreadable) == 1
            assert {Path(path).name for path in index.paths()} == {"one.txt", "two.py"}

        await simulate(
            ingest.ingest(texts),
            seeds=scale(200, 2000),
            crashes=1,
            setup=empty,
            check=check,
            include=[ingest],
            lifespan=opened(index),
        )
        await crash_test(
            ingest.ingest(texts),
            setup=empty,
            check=check,
            same_result=False,
            include=[ingest],
            lifespan=opened(index),
        )


OLU = Invoice("i-1", "Olu", Decimal(100)), Habit(pays_on=4.25, asks_on=1.5, asks_for=5.0)
PIA = Invoice("i-2", "Pia", Decimal(50)), Habit(pays_on=None)
PAID = reminders.Outcome("i-1", Decimal(100), 4, 0)
LOST = reminders.Outcome("i-2", Decimal(0), 21, 4)


async def test_the_reminders(scale: Scale, capsys: pytest.CaptureFixture[str]) -> None:
    month = reminders.month([OLU, PIA], timedelta(days=1))
    report = await crash_test(month, include=[reminders], limit=scale(20, 1000))
    assert report.outcome.result == [PAID, LOST]

    def check(outcome: RunOutcome) -> None:
        assert outcome.result == [PAID]

    month = reminders.month([OLU], timedelta(days=1))
    seeds = scale(200, 2000)
    await simulate(month, seeds=seeds, crashes=1, include=[reminders], check=check)
