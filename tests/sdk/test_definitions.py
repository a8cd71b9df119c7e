"""What a decorator reads from its function, and what it refuses."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from stepwell import DefinitionError, Retry, step, task, workflow
from stepwell_queue.contract import Identity, Kind
from stepwell_runtime.definitions import Definition, Registry, registry

# Loosely typed: what is tested here would not pass a type checker.
lax_step: Any = step
lax_task: Any = task
lax_workflow: Any = workflow


class Later:
    """Defined here, named by an annotation above its definition elsewhere."""


class Shop:
    @workflow
    async def checkout(self) -> None: ...


def definition(decorated: Any) -> Definition:
    found: Definition = decorated.definition
    return found


def test_the_name_is_the_qualified_name_without_the_module() -> None:
    @workflow
    async def flow() -> None: ...

    assert Shop.checkout.name == "Shop.checkout"
    assert flow.name == "test_the_name_is_the_qualified_name_without_the_module.flow"


def test_a_name_and_a_version_may_be_given() -> None:
    @workflow(name="flow", version=3)
    async def anything_else() -> None: ...

    assert definition(anything_else).identity == Identity(Kind.WORKFLOW, "flow", 3)
    assert step(name="one")(lambda: 1).name == "one"
    assert task(name="part")(functools.partial(print, 1)).name == "part"


def test_workflows_tasks_and_queued_steps_are_registered_and_plain_steps_are_not() -> None:
    async def fn() -> None: ...

    made = [workflow(fn), task(fn), step(queue="gpu")(fn)]
    served = registry.select(frozenset((__name__,)))
    assert all(served[definition(one).identity] is definition(one) for one in made)
    plain = step(name="never queued")(fn)
    assert definition(plain).identity not in registry.select(frozenset((__name__,)))


def test_a_redefinition_in_one_module_replaces_the_earlier_one() -> None:
    def define() -> Any:
        @workflow(name="redefined")
        async def flow() -> None: ...

        return flow

    define()
    newest = define()
    served = registry.select(frozenset((__name__,)))
    assert served[definition(newest).identity] is definition(newest)


def test_of_one_name_in_many_modules_each_is_served_by_an_app_limited_to_its_module() -> None:
    fresh = Registry()
    made = [dataclasses.replace(definition(step(fine)), module=name) for name in ("a", "b", "c")]
    for index, one in enumerate(made):
        one.line = index
        fresh.add(one)
    for name, one in zip(("a", "b", "c"), made, strict=True):
        assert list(fresh.select(frozenset((name,))).values()) == [one]
    with pytest.raises(DefinitionError, match="two steps are called 'fine'"):
        fresh.select(frozenset(("b", "c")))


def test_types_are_read_when_they_are_asked_for() -> None:
    async def fn(a: int, b: list[Early], c: int) -> Early:
        return b[a + c]

    fn.__annotations__["c"] = "Unknown"
    flow = lax_workflow(fn)
    found = definition(flow)
    assert found.parameter_types == {"a": int, "b": list[Early], "c": Any}
    assert found.result_type is Early


class Early: ...


def no_parameters() -> int:
    return 0


def one_or_two(a: int, b: int = 1) -> int:
    return a + b


def two(a: int, /, b: int) -> int:
    return a + b


def optional_keyword(*, a: int = 1) -> int:
    return a


def needed_keyword(*, a: int) -> int:
    return a


def any_keywords(**rest: int) -> int:
    return len(rest)


ARITIES: list[tuple[Any, tuple[int, int] | None]] = [
    (no_parameters, (0, 0)),
    (one_or_two, (1, 2)),
    (two, (2, 2)),
    (optional_keyword, (0, 0)),
    (needed_keyword, None),
    (any_keywords, (0, 0)),
]


@pytest.mark.parametrize(("fn", "arity"), ARITIES)
def test_plain_arity_says_which_calls_need_no_binding(
    fn: Callable[..., int], arity: tuple[int, int] | None
) -> None:
    assert definition(step(name="s")(fn)).plain_arity == arity


def test_a_wrapped_coroutine_function_is_async() -> None:
    def traced(fn: Callable[[int], Coroutine[Any, Any, int]]) -> Callable[[int], Awaitable[int]]:
        @functools.wraps(fn)
        def wrapper(number: int) -> Awaitable[int]:
            return fn(number)

        return wrapper

    @step
    @traced
    async def work(number: int) -> int:
        return number

    def returns_awaitable(number: int) -> Awaitable[int]:
        return work.fn(number)

    assert definition(work).is_async
    assert definition(step(returns_awaitable)).is_async
    assert definition(step(returns_awaitable)).result_type is int
    assert not definition(step(name="plain")(lambda: 1)).is_async


def test_the_place_is_that_of_the_function_and_not_of_what_wraps_it() -> None:
    def wrap(fn: Callable[[], int]) -> Callable[[], int]:
        @functools.wraps(fn)
        def wrapper() -> int:
            return fn()

        return wrapper

    @step
    @wrap
    def one() -> int:
        return 1

    @step
    @wrap
    def two() -> int:
        return 2

    assert definition(one).place != definition(two).place
    assert definition(one).place.startswith(__file__)


class Adder:
    async def __call__(self, number: int) -> int:
        return number


async def agen() -> AsyncIterator[int]:
    yield 1


def gen() -> Iterator[int]:
    yield 1


async def fine(number: int = 0) -> int:
    return number


lax_fine: Any = fine


def test_a_callable_object_is_fine_with_a_name() -> None:
    made = step(name="object")(Adder())
    assert definition(made).is_async
    assert definition(made).plain_arity == (1, 1)


@pytest.mark.parametrize(
    ("decorate", "words"),
    [
        (lambda: lax_step(Adder()), "a callable object, which has no name"),
        (lambda: lax_workflow(agen), "is a generator"),
        (lambda: lax_task(gen), "is a generator"),
        (lambda: lax_step(Early), "decorates a function"),
        (lambda: lax_step(3), "decorates a function"),
        (lambda: lax_task(classmethod(lax_fine)), "put @classmethod above @task"),
        (lambda: lax_step(lax_workflow(fine)), "decorated already"),
        (lambda: lax_workflow(name="")(fine), "1 to 255 printable characters"),
        (lambda: lax_workflow(name="a\0b")(fine), "printable"),
        (lambda: lax_task(version=True)(fine), "whole number"),
        (lambda: lax_task(queue="")(fine), "queue="),
        (lambda: lax_task(max_crashes=0)(fine), "max_crashes="),
        (lambda: lax_task(deadline=-1)(fine), "finite span"),
        (lambda: lax_workflow(on_failure="stop")(fine), "'rollback' or 'hold'"),
    ],
)
def test_what_cannot_be_decorated_is_refused_with_a_remedy(
    decorate: Callable[[], object], words: str
) -> None:
    with pytest.raises(DefinitionError, match=words):
        decorate()


def test_the_options_of_a_step_are_on_its_definition() -> None:
    retry = Retry(attempts=2)
    made = step(retry=retry, timeout=3, on_cancel="interrupt", queue="gpu", version=2)(fine)
    found = made.definition
    assert (found.retry, found.timeout, found.on_cancel, found.queue) == (
        retry,
        3.0,
        "interrupt",
        "gpu",
    )


def returned_as_it_is(result: Any) -> Any:
    return result


def test_an_undo_maker_must_return_a_call() -> None:
    async def reserve() -> None: ...

    maker = lax_step(compensate=returned_as_it_is)(reserve).definition.compensate
    with pytest.raises(TypeError, match="must return a call such as"):
        maker(5)
    fine_step = step(fine)
    assert maker(fine_step(1)).definition is fine_step.definition


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"attempts": 2**63}, ValueError, "attempts=…. is at most 9223372036854775807"),
        ({"factor": "2"}, TypeError, "factor=…. takes a number, not '2'"),
        ({"factor": float("inf")}, ValueError, "factor=…. must be >= 1 and at most 1e9"),
        ({"factor": float("nan")}, ValueError, "factor=…. must be >= 1"),
        ({"factor": 2**2000}, ValueError, "factor=…. must be >= 1 and at most 1e9"),
        ({"jitter": 3}, TypeError, "jitter=…. takes True or False, not 3"),
        ({"delay": 10**400}, ValueError, "delay=…. must be a finite span"),
    ],
)
def test_a_retry_that_cannot_be_stored_or_computed_is_refused(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Retry(**settings)
