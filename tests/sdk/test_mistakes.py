"""Every row of the table in errors.md happens as it says."""

from __future__ import annotations

import asyncio
import functools
import gc
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell import Retention, Retry, Signal, Stepwell, StepwellError
from stepwell_runtime.definitions import registry
from tests.sdk.queue_mistakes import QUEUE_MISTAKES
from tests.sdk.server_mistakes import SERVER_MISTAKES, silence
from tests.sdk.start_mistakes import START_MISTAKES

Mistake = Callable[[Stepwell], Coroutine[Any, Any, object]]
MISTAKES: dict[str, Mistake] = {}

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.blocking,
    # What refuses calls in a workflow, such as asyncio.gather, leaves them unawaited.
    pytest.mark.filterwarnings("ignore:the .* call .* never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .*_wrap_awaitable. was never:RuntimeWarning"),
]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "errors.md"
ROW = re.compile(r"^\| (?P<what>.+?) \| `(?P<error>\w+)` \| (?P<message>.+?) \|$", re.MULTILINE)
TABLES = PAGE.read_text("utf-8").partition("## Mistakes")[2]
ROWS = {row["what"]: row for row in ROW.finditer(TABLES)}


def mistake(what: str) -> Callable[[Mistake], Mistake]:
    def add(function: Mistake) -> Mistake:
        MISTAKES[what] = function
        return function

    return add


def plainly(what: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Add a mistake that needs neither app nor loop."""

    def add(function: Callable[[], object]) -> Callable[[], object]:
        async def make(app: Stepwell) -> object:
            return function()

        MISTAKES[what] = make
        return function

    return add


def inside(what: str) -> Callable[[Callable[[], Coroutine[Any, Any, Any]]], object]:
    """Add a mistake that is made in a workflow."""

    def add(function: Callable[[], Coroutine[Any, Any, Any]]) -> object:
        flow = stepwell.workflow(function)

        async def make(app: Stepwell) -> object:
            return await app.run(flow(), id="the-run", timeout=20)

        MISTAKES[what] = make
        return flow

    return add


# Loosely typed on purpose: these are mistakes that a type checker would point out.
lax: Any = stepwell


@stepwell.step
async def charge(amount: int) -> int:
    return amount


@stepwell.step(queue="gpu")
async def render(amount: int) -> int:
    return amount


@stepwell.step(compensate=charge)
async def reserve(amount: int) -> int:
    return amount


@stepwell.task
async def send(amount: int) -> int:
    return amount


@stepwell.workflow
async def checkout(amount: int) -> int:
    return await charge(amount)


@stepwell.workflow
async def waits() -> int:
    return await stepwell.wait_for_signal(approved)


approved = Signal("approved", int)


@plainly("`@workflow` on a plain `def`")
def _() -> object:
    def ship() -> None: ...

    return lax.workflow(ship)


@plainly("`@step` on a lambda, without `name=`")
def _() -> object:
    return stepwell.step(lambda: 1)


@plainly("`@task` on a partial, without `name=`")
def _() -> object:
    return stepwell.task(functools.partial(charge.fn, 1))


@plainly("`@step` on a generator")
def _() -> object:
    def pages() -> Iterator[int]:
        yield 1

    return stepwell.step(pages)


@plainly("decorating twice")
def _() -> object:
    return lax.task(charge)


@plainly("`@step` above `@staticmethod`")
def _() -> object:
    return lax.step(staticmethod(charge.fn))


@plainly("`@step(retry=3)`")
def _() -> object:
    return lax.step(retry=3)(charge.fn)


@plainly("`@step(timeout=0)`")
def _() -> object:
    return stepwell.step(timeout=0)(charge.fn)


@plainly('`@step(on_cancel="stop")`')
def _() -> object:
    return lax.step(on_cancel="stop")(charge.fn)


@plainly('`@step(executor="process")` on an `async def`')
def _() -> object:
    async def render() -> None: ...

    return stepwell.step(executor="process")(render)


@plainly('`@task(executor="process")` on a function in a function')
def _() -> object:
    def render() -> None: ...

    return stepwell.task(executor="process")(render)


def two_arguments(items: list[int], more: int) -> None: ...


def items_alone(items: list[int]) -> None: ...


@plainly("`@task(batch=…)` on a function of two arguments")
def _() -> object:
    return lax.task(batch=10)(two_arguments)


@plainly("`@task(linger=…)` without `batch=`")
def _() -> object:
    return lax.task(linger=1.0)(items_alone)


@plainly("`@task(batch=…, max_crashes=2)`")
def _() -> object:
    return lax.task(batch=10, max_crashes=2)(items_alone)


@plainly("`with_options(timeout=…)` for a task that is executed in batches")
def _() -> object:
    many = stepwell.task(batch=10)(items_alone)
    return many(1).with_options(timeout=3)


@plainly("`@workflow(version=0)`")
def _() -> object:
    return stepwell.workflow(version=0)(checkout.fn)


@plainly("`@step(compensate=5)`")
def _() -> object:
    return lax.step(compensate=5)(charge.fn)


@plainly("`Retry(attempts=0)`")
def _() -> object:
    return Retry(attempts=0)


@plainly("wrong arguments: `charge(1, 2)`")
def _() -> object:
    return untyped(charge)(1, 2)


def untyped(value: Any) -> Any:
    return value


@plainly("`with_options(queue=…)` for a step that was declared without a queue")
def _() -> object:
    return charge(1).with_options(queue="gpu")


@plainly("`delay=` and `at=` together")
def _() -> object:
    return send(1).with_options(delay=1.0, at=datetime(2030, 1, 1))  # noqa: DTZ001 - not looked at


@plainly("a datetime without a time zone")
def _() -> object:
    return send(1).with_options(at=datetime(2030, 1, 1))  # noqa: DTZ001 - the mistake


@plainly("`Stepwell(None)`")
def _() -> object:
    return lax.Stepwell(None)


@plainly("`Stepwell(…, include=module)` without a list")
def _() -> object:
    return lax.Stepwell("orders.db", include=stepwell)


class Tracing(stepwell.Middleware):
    pass


@plainly("`Stepwell(…, middleware=Tracing())` without a list")
def _() -> object:
    return lax.Stepwell("orders.db", middleware=Tracing())


@plainly("`Stepwell(…, middleware=[Tracing])` without `()`")
def _() -> object:
    return lax.Stepwell("orders.db", middleware=[Tracing])


@plainly("`RetryLater(-1)`")
def _() -> object:
    return stepwell.RetryLater(-1)


@plainly("`Queue(rate=100)`")
def _() -> object:
    return lax.Queue("mail", rate=100)


@mistake("two different `Queue`s of one name")
async def _(app: Stepwell) -> object:
    async with app.worker(queues=[stepwell.Queue("mail"), stepwell.Queue("mail", limit=2)]):
        return None


@plainly("`Retention()` without a limit")
def _() -> object:
    return Retention()


def without(make: Callable[[], Coroutine[Any, Any, object]]) -> Mistake:
    """Return a mistake that needs no app."""

    async def made(app: Stepwell) -> object:
        return await make()

    return made


MISTAKES.update((what, without(make)) for what, make in SERVER_MISTAKES.items())
MISTAKES.update(START_MISTAKES)
MISTAKES.update(QUEUE_MISTAKES)


@mistake("a server that does not answer in time")
async def _(app: Stepwell) -> object:
    return await silence(lambda app: app.start(checkout(1)))


@mistake("awaiting a workflow outside of a run")
async def _(app: Stepwell) -> object:
    return await checkout(1)


@mistake("`await sleep(…)` outside of a workflow")
async def _(app: Stepwell) -> object:
    return await untyped(stepwell.sleep)(1)


@mistake("`await sleep(…)` in a step or task")
async def _(app: Stepwell) -> object:
    return await app.run(naps(), timeout=20)


@stepwell.task
async def naps() -> None:
    await stepwell.sleep(1)


@plainly("`emit()` outside of runs")
def _() -> None:
    stepwell.emit("tokens", "hello")


@plainly("`now()` outside of a workflow")
def _() -> object:
    return stepwell.now()


@plainly("`current_step()` outside of a step")
def _() -> object:
    return stepwell.current_step()


@plainly("`current_job()` outside of a task")
def _() -> object:
    return stepwell.current_job()


@plainly("`current_app()` outside of a step")
def _() -> object:
    return stepwell.current_app()


@mistake("`app.start` of a task")
async def _(app: Stepwell) -> object:
    return await untyped(app).start(send(1))


@mistake("`app.enqueue` of a workflow")
async def _(app: Stepwell) -> object:
    return await untyped(app).enqueue(checkout(1))


@mistake("`app.start` of a step")
async def _(app: Stepwell) -> object:
    return await untyped(app).start(charge(1))


@mistake("`app.start` of the workflow instead of a call")
async def _(app: Stepwell) -> object:
    return await untyped(app).start(checkout)


@mistake("using an app that is not open")
async def _(app: Stepwell) -> object:
    return await Stepwell("orders.db").start(checkout(1))


@mistake("opening an app twice")
async def _(app: Stepwell) -> object:
    async with app:
        return None


@mistake("using an app from another event loop")
async def _(app: Stepwell) -> object:
    found: list[BaseException] = []

    def elsewhere() -> None:
        try:
            asyncio.run(app.runs())
        except BaseException as error:  # noqa: BLE001 - raised below
            found.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    raise found[0]


@mistake("a blocking method in the event loop")
async def _(app: Stepwell) -> object:
    return app.blocking.runs()


@mistake("`stepwell.run(…)` in an event loop")
async def _(app: Stepwell) -> object:
    return stepwell.run(checkout(1), store="orders.db")


@mistake("an id that is taken by other arguments")
async def _(app: Stepwell) -> object:
    await app.start(checkout(1), id="order-1")
    return await app.start(checkout(2), id="order-1")


@mistake("a signal to a run that does not exist")
async def _(app: Stepwell) -> object:
    return await untyped(app).signal("order-7", approved, 1)


@mistake("a signal to a run that has ended")
async def _(app: Stepwell) -> object:
    await app.run(checkout(1), id="order-1")
    return await untyped(app).signal("order-1", approved, 1)


@mistake("a signal whose value does not fit its type")
async def _(app: Stepwell) -> object:
    await app.start(waits(), id="order-1")
    return await untyped(app).signal("order-1", approved, "yes")


@mistake("`retry` of a run that did not fail")
async def _(app: Stepwell) -> object:
    await app.run(checkout(1), id="order-1")
    return await app.retry("order-1")


@mistake("`app.runs(status=…)` with a word that is no status")
async def _(app: Stepwell) -> object:
    return await app.runs(status="done")


@mistake('`app.start(call.with_options(on_parent_cancel="leave"))`')
async def _(app: Stepwell) -> object:
    return await app.start(checkout(1).with_options(on_parent_cancel="leave"))


@mistake("`app.prune()` without a limit")
async def _(app: Stepwell) -> object:
    return await app.prune()


@mistake('`app.worker(queues="gpu")`')
async def _(app: Stepwell) -> object:
    return app.worker(queues="gpu")


@mistake("a value that cannot be stored")
async def _(app: Stepwell) -> object:
    return await untyped(app).start(untyped(checkout)(threading.Lock()))


@mistake("two workflows of one name in two modules")
async def _(app: Stepwell) -> object:
    def define(module: str) -> Any:
        source = "import stepwell\n@stepwell.workflow\nasync def twice(): ...\n"
        names: dict[str, Any] = {"__name__": module}
        exec(compile(source, f"{module}.py", "exec"), names)
        return names["twice"].definition

    both = [define("shop"), define("billing")]
    try:
        return registry.select(frozenset(("shop", "billing")))
    finally:
        for one in both:
            registry.remove(one)


@inside("`asyncio.sleep` in a workflow")
async def naps_on_the_loop() -> None:
    await asyncio.sleep(1)


@inside("`asyncio.gather` in a workflow")
async def gathers() -> None:
    await asyncio.gather(charge(1), charge(2))


apps: list[Stepwell] = []


@inside("`app.start` in a workflow")
async def starts_by_the_app() -> None:
    await apps[-1].start(checkout(1))


@inside("a blocking method in a workflow")
async def blocks() -> None:
    apps[-1].blocking.start(checkout(1))


@inside("`parallel` of functions instead of calls")
async def forgets_the_call() -> None:
    await stepwell.parallel(untyped(charge))


@inside("`parallel` of a list")
async def forgets_the_star() -> None:
    await stepwell.parallel(untyped([charge(1)]))


@inside("`race()` of nothing")
async def races_alone() -> None:
    await stepwell.race()


@inside("`wait_for_signal(default=…)` without `timeout=`")
async def never_defaults() -> None:
    await untyped(stepwell.wait_for_signal)(approved, default=1)


@inside("`compensate` of a function instead of a call")
async def undoes_nothing() -> None:
    stepwell.compensate(untyped(charge))


@inside("`current_step()` in a workflow")
async def asks_for_a_step() -> None:
    stepwell.current_step()


@inside("awaiting a step with `queue=` in a step")
async def nests_queued() -> None:
    await calls_render()


@inside("awaiting a step with `compensate=` in a step")
async def nests_undoable() -> None:
    await calls_reserve()


@stepwell.step
async def calls_render() -> int:
    return await render(1)


@stepwell.step
async def calls_reserve() -> int:
    return await reserve(1)


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> Iterator[None]:
    """What was there before needs not be collected again and again."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Calls that were left warn in the test that left them."""
    yield
    gc.collect()


def test_the_table_and_the_tested_mistakes_are_the_same() -> None:
    assert sorted(ROWS) == sorted(MISTAKES)


@pytest.mark.parametrize("what", MISTAKES)
async def test_a_mistake_gives_the_documented_message(
    what: str, make_app: Callable[..., Stepwell]
) -> None:
    row = ROWS[what]
    async with make_app() as app:
        apps.append(app)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the page says which
            await MISTAKES[what](app)
    assert type(caught.value).__name__ == row["error"]
    parts = row["message"].split("…")
    pattern = ".*".join(re.escape(part) for part in parts)
    assert re.search(pattern, str(caught.value), re.DOTALL), str(caught.value)
    assert isinstance(caught.value, (StepwellError, TypeError, ValueError))
