"""Tasks whose function takes many calls at once."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, overload

from typing_extensions import TypeVar

from stepwell import _options as check
from stepwell._decorated import Task
from stepwell._definitions import checked, shown
from stepwell_runtime.definitions import Seconds
from stepwell_runtime.errors import DefinitionError

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F_co = TypeVar("F_co", covariant=True, default=Any)

LARGEST_BATCH = 10_000
LEAST_CRASHES = 3
"""Workers that must die in a batch until it is known which of its jobs kills them."""


class BatchTask(Task[[T], R_co, Any], Generic[T, R_co, F_co]):
    """A task with `batch=`: calls are made per item, and the function gets a list of items."""

    @property
    def fn(self) -> Callable[[list[T]], F_co]:  # type: ignore[override]  # it takes the items
        """The function that was decorated."""
        return self.definition.fn


class BatchDecorator(Protocol):
    """What `task(batch=…)` returns: an exception among the results is no result of a call."""

    @overload
    def __call__(
        self, fn: Callable[[list[T]], Awaitable[None]], /
    ) -> BatchTask[T, None, Awaitable[None]]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[T]], Awaitable[list[R | BaseException]]], /
    ) -> BatchTask[T, R, Awaitable[list[R | BaseException]]]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[T]], Awaitable[list[R | Exception]]], /
    ) -> BatchTask[T, R, Awaitable[list[R | Exception]]]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[T]], Awaitable[list[R]]], /
    ) -> BatchTask[T, R, Awaitable[list[R]]]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], None], /) -> BatchTask[T, None, None]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[T]], list[R | BaseException]], /
    ) -> BatchTask[T, R, list[R | BaseException]]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[T]], list[R | Exception]], /
    ) -> BatchTask[T, R, list[R | Exception]]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], list[R]], /) -> BatchTask[T, R, list[R]]: ...


def batch_fields(
    fn: Callable[..., Any], batch: int, linger: Seconds, max_crashes: int, common: dict[str, Any]
) -> dict[str, Any]:
    """Return the fields of a task whose calls have one item each."""
    checked("task", fn, check.whole, batch, "batch", 1, LARGEST_BATCH)
    if checked("task", fn, check.whole, max_crashes, "max_crashes", 1) < LEAST_CRASHES:
        raise DefinitionError(
            f"@task {shown(fn)}: a batch needs max_crashes of at least {LEAST_CRASHES}: only after "
            "two crashes are its jobs executed one by one, so until then each may be innocent"
        )
    return {
        **common,
        "batch": batch,
        "linger": checked("task", fn, check.span, linger, "linger"),
        "signature": _signature_of_item(fn, common["signature"]),
        "plain_arity": (1, 1),
    }


def _signature_of_item(fn: Callable[..., Any], signature: inspect.Signature) -> inspect.Signature:
    parameters = list(signature.parameters.values())
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(parameters) != 1 or parameters[0].kind not in kinds:
        raise DefinitionError(
            f"@task {shown(fn)}: with batch= it takes one argument, the list of items, not "
            f"{signature}: put what belongs together into one item, such as a dataclass"
        )
    item = parameters[0].replace(
        kind=inspect.Parameter.POSITIONAL_ONLY, default=inspect.Parameter.empty
    )
    return inspect.Signature([item])
