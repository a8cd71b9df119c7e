"""What a decorator knows of its function."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from stepwell_queue.contract import Identity, Kind, NamedKeep
from stepwell_runtime.errors import DefinitionError, GiveUp
from stepwell_runtime.queues import DeclaredQueue
from stepwell_runtime.spans import Seconds as Seconds
from stepwell_runtime.spans import seconds as seconds

if TYPE_CHECKING:
    from stepwell_runtime.schedules.plans import Declaration

DEFAULT_QUEUE = "default"


_MOST_ATTEMPTS = 2**63 - 1  # as much as is stored with a call
_LARGEST_FACTOR = 1e9


@dataclass(frozen=True, slots=True)
class Retry:
    """When a failed step or task is tried again.

    `attempts` is the total number of executions (1 = no retry). The n-th retry waits at most
    `min(delay * factor**(n-1), max_delay)` seconds: any part of it, so that what failed together
    is not retried together; with `jitter=False`, all of it. Only exceptions of `retry_on` and not
    of `give_up_on` are retried, and never GiveUp.
    """

    attempts: int = 1
    delay: Seconds = 1.0
    factor: float = 2.0
    max_delay: Seconds = 60.0
    jitter: bool = True
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    give_up_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        attempts: object = getattr(self, "attempts")  # noqa: B009 - may be anything the user wrote
        if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
            raise ValueError(
                f"Retry(attempts=…) is the total number of executions, at least 1, not "
                f"{self.attempts!r}"
            )
        if attempts > _MOST_ATTEMPTS:
            raise ValueError(
                f"Retry(attempts=…) is at most {_MOST_ATTEMPTS}, not {self.attempts!r}"
            )
        factor: object = getattr(self, "factor")  # noqa: B009 - likewise
        if isinstance(factor, bool) or not isinstance(factor, (int, float)):
            raise TypeError(f"Retry(factor=…) takes a number, not {factor!r}")
        if not 1 <= factor <= _LARGEST_FACTOR:
            raise ValueError(f"Retry(factor=…) must be >= 1 and at most 1e9, not {factor!r}")
        if not isinstance(getattr(self, "jitter"), bool):  # noqa: B009 - likewise
            raise TypeError(f"Retry(jitter=…) takes True or False, not {self.jitter!r}")
        object.__setattr__(self, "delay", seconds(self.delay, "Retry(delay=…)"))
        object.__setattr__(self, "max_delay", seconds(self.max_delay, "Retry(max_delay=…)"))
        for name in ("retry_on", "give_up_on"):
            given: object = getattr(self, name)
            classes = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
            if not all(isinstance(c, type) and issubclass(c, BaseException) for c in classes):
                raise TypeError(f"Retry({name}=…) takes exception classes, not {given!r}")
            object.__setattr__(self, name, classes)

    def wants(self, error: BaseException, failures: int) -> bool:
        """Whether to try again after the `failures`-th failure."""
        if failures >= self.attempts or isinstance(error, (GiveUp, *self.give_up_on)):
            return False
        return isinstance(error, self.retry_on)

    def delay_after(self, failures: int, chance: random.Random) -> float:
        """Seconds to wait after the `failures`-th failure."""
        longest = float(self.max_delay)  # type: ignore[arg-type]  # made a float in __post_init__
        try:
            wait = min(float(self.delay) * self.factor ** (failures - 1), longest)  # type: ignore[arg-type]  # likewise
        except OverflowError:
            wait = longest
        return chance.uniform(0.0, wait) if self.jitter else wait


NO_RETRY = Retry()


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What `with_options` overrides for one call; None = as the decorator says."""

    id: str | None = None
    queue: str | None = None
    timeout: float | None = None
    deadline: float | None = None
    retry: Retry | None = None
    priority: int | None = None
    delay: float | None = None
    at: float | None = None
    declared: DeclaredQueue | None = None
    """What is said of `queue`, where that is a declared one."""
    expires: float | datetime | None = None
    """Seconds from its enqueueing, or when."""
    key: str | None = None
    unique: str | None = None
    unique_while: Literal["unended", "pending"] | None = None
    unique_for: float | None = None
    replace: bool | None = None
    after: tuple[str, ...] | None = None
    after_failed: Literal["fail", "start"] | None = None
    on_parent_cancel: Literal["cancel", "leave"] | None = None


DEFAULT_OPTIONS = CallOptions()


def resolved_annotations(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of `fn` by name; what cannot be resolved is Any."""
    target = inspect.unwrap(fn.func if isinstance(fn, functools.partial) else fn)
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return get_type_hints(target, include_extras=True)
    except Exception:  # noqa: BLE001 - whatever evaluating a user's annotation raises
        return {
            name: _resolved(value, target)
            for name, value in getattr(target, "__annotations__", {}).items()
        }


def _resolved(annotation: Any, owner: Callable[..., Any]) -> Any:
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(
            holder, globalns=getattr(owner, "__globals__", {}), include_extras=True
        )["it"]
    except Exception:  # noqa: BLE001 - likewise
        return Any


def types_of_item(fn: Callable[..., Any]) -> tuple[dict[str, Any], Any]:
    """Return the types of one item and of its result, for a function of a list of items."""
    hints = resolved_annotations(fn)
    result = awaited_type(hints.pop("return", Any))
    if result is not None and result is not type(None):
        result = _without_exceptions(_element(result))
    return {name: _element(hint) for name, hint in hints.items()}, result


def _element(annotation: Any) -> Any:
    return (get_args(annotation) or (Any,))[0]


def _without_exceptions(annotation: Any) -> Any:
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    kept = tuple(one for one in get_args(annotation) if not _is_exception(one))
    union: Any = Union
    return union[kept] if kept else None


def _is_exception(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseException)


def awaited_type(annotation: Any) -> Any:
    """Return what awaiting a value of this type gives.

    R for Awaitable[R] and Coroutine[…, …, R], else itself.
    """
    if get_origin(annotation) in (Awaitable, Coroutine):
        return (get_args(annotation) or (Any,))[-1]
    return annotation


def _none_yet() -> list[Declaration]:
    return []


@dataclass(eq=False)
class Definition:
    """The common part of a decorated function."""

    kind: ClassVar[Kind]  # each kind of definition says which

    fn: Callable[..., Any]
    name: str
    version: int = 1
    queue: str | None = None
    declared: DeclaredQueue | None = None
    """What is said of the queue, where that is a declared one."""
    key: Callable[..., Any] | None = None
    """Makes the key of a run out of its arguments."""
    priority: int = 0
    expires: float | None = None
    retention: NamedKeep | None = None
    """How long its ended runs are kept; None = as its queue says."""
    is_async: bool = True
    executor: Literal["thread", "process"] = "thread"
    """What executes a plain function; an async one runs on the loop."""
    module: str = ""
    file: str = ""
    line: int = 0
    signature: inspect.Signature = field(default_factory=inspect.Signature)
    types: tuple[dict[str, Any], Any] | None = None
    """Types of the parameters and of the result.

    None = found in the annotations when first asked for.
    """
    plain_arity: tuple[int, int] | None = None
    """(fewest, most) positional arguments if a call without keywords needs no binding.

    None = always bind.
    """
    # Asked for at every call, so they are plain attributes, made once.
    identity: Identity = field(init=False)
    heading: tuple[int, str, int, str, float | None] = field(init=False)
    """What is the same in the rows of all its runs.

    Kind, name, version, queue and deadline in seconds, of calls that say nothing else.
    """
    schedules: list[Declaration] = field(init=False, default_factory=_none_yet)
    """What `@schedule` declares for it."""
    on_terms: bool = field(init=False)
    """Whether the rows of its runs have more than what `heading` says."""
    its_arguments: str = field(init=False)
    its_result: str = field(init=False)

    def __post_init__(self) -> None:
        deadline: float | None = getattr(self, "deadline", None)  # a step has none
        kind = int(self.kind)
        self.identity = Identity(self.kind, self.name, self.version)
        self.heading = kind, self.name, self.version, self.queue or DEFAULT_QUEUE, deadline
        self.on_terms = bool(self.key or self.priority or self.expires is not None)
        # What encoding names in its errors.
        self.its_arguments = f"the arguments of {self.word} {self.name!r}"
        self.its_result = f"the result of {self.word} {self.name!r}"

    @property
    def parameter_types(self) -> dict[str, Any]:
        return self._annotated()[0]

    @functools.cached_property
    def result_type(self) -> Any:
        return self._annotated()[1]

    @functools.cached_property
    def positional_types(self) -> tuple[Any, ...]:
        """The types of the parameters in order; a variadic one is the last."""
        types = self.parameter_types
        kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
        parameters = self.signature.parameters
        return tuple(
            types.get(name, Any) for name, one in parameters.items() if one.kind not in kinds
        )

    def _annotated(self) -> tuple[dict[str, Any], Any]:
        # Not at decoration: annotations may name classes that are defined further down.
        if self.types is None:
            hints = resolved_annotations(self.fn)
            result = hints.pop("return", Any)
            self.types = hints, awaited_type(result)
        return self.types

    @functools.cached_property
    def word(self) -> str:
        return self.kind.name.lower()

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise TypeError, naming the function, when the arguments do not fit its signature."""
        arity = self.plain_arity
        if arity is not None and not kwargs and arity[0] <= len(args) <= arity[1]:
            return
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None


@dataclass(eq=False)
class StepDefinition(Definition):
    kind: ClassVar[Kind] = Kind.STEP
    max_crashes: ClassVar[int] = 3
    batch: ClassVar[int | None] = None
    retry: Retry = NO_RETRY
    timeout: float | None = None
    compensate: Callable[[Any], Any] | None = None
    on_cancel: Literal["finish", "interrupt"] = "finish"


@dataclass(eq=False)
class TaskDefinition(Definition):
    kind: ClassVar[Kind] = Kind.TASK
    retry: Retry = NO_RETRY
    timeout: float | None = None
    deadline: float | None = None
    max_crashes: int = 3
    batch: int | None = None
    """How many calls its function gets at most, as a list; None = one, as itself."""
    linger: float = 0.0

    def _annotated(self) -> tuple[dict[str, Any], Any]:
        if self.types is None and self.batch is not None:
            self.types = types_of_item(self.fn)
        return super()._annotated()


@dataclass(eq=False)
class WorkflowDefinition(Definition):
    kind: ClassVar[Kind] = Kind.WORKFLOW
    on_failure: Literal["rollback", "hold"] = "rollback"
    deadline: float | None = None
    max_crashes: int = 3


class Registry:
    """The workflows, tasks and `queue=` steps that a process has code for."""

    def __init__(self) -> None:
        self._found: dict[Identity, list[Definition]] = {}

    def add(self, definition: Definition) -> None:
        """Register; a redefinition (same module, or same file and line) replaces the earlier one.

        Others of the same identity stay beside it: an app may be limited to one of their modules.
        """
        rivals = self._found.setdefault(definition.identity, [])
        for index, known in enumerate(rivals):
            if known.module == definition.module or known.place == definition.place:
                rivals[index] = definition
                return
        rivals.append(definition)

    def remove(self, definition: Definition) -> None:
        """Forget a definition that is registered."""
        self._found[definition.identity].remove(definition)

    def select(self, modules: frozenset[str] | None) -> dict[Identity, Definition]:
        """Return what a worker limited to `modules` (None: all) serves.

        Raise DefinitionError on a clash among them.
        """
        chosen: dict[Identity, Definition] = {}
        for identity, rivals in self._found.items():
            fitting = [one for one in rivals if modules is None or one.module in modules]
            if len(fitting) > 1:
                first, second = fitting[:2]
                raise DefinitionError(
                    f"two {first.word}s are called {identity.name!r} (version "
                    f"{identity.version}): {first.place} and {second.place}; give one of them "
                    "name=… or version=…, or limit the app with include=…"
                )
            if fitting:
                chosen[identity] = fitting[0]
        return chosen


registry = Registry()
