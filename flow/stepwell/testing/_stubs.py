"""Stubs: what is done in place of a step, task or child workflow, inside of one app."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepwell_runtime.definitions import Definition, TaskDefinition
from stepwell_runtime.fitting import refuse_unfit
from stepwell_runtime.scope import JobScope

Identity = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class StubCall:
    """One execution of a step, task or stubbed workflow, as `TestApp.calls` lists them."""

    name: str
    arguments: Mapping[str, object]
    """By the names of the parameters."""
    run_id: str
    path: str
    """Where in the code of its workflow a step stands; empty for a task and a workflow."""
    attempt: int
    """1, and one more for each failure so far."""
    key: str
    """What a step or task has as `current_job().key`; empty for a workflow."""
    at: float
    """Seconds since the app's start."""


@dataclass(eq=False)
class Stub:
    """What is done in place of a function, and how often it was."""

    definition: Definition
    outcomes: Sequence[object]
    does: Callable[..., Any] | None = None
    takes: float = 0.0
    used: int = 0
    """How often it was executed."""
    _given: dict[tuple[str, str, int], int] = field(default_factory=dict[tuple[str, str, int], int])

    def __repr__(self) -> str:
        return f"<stub of {self.definition.word} {self.definition.name}, used {self.used} times>"

    def outcome(self, execution: tuple[str, str, int]) -> object:
        """Return what this execution returns, or the exception that it raises.

        After the last of several, that one again. An execution that is repeated after a crash
        gets what it got.
        """
        number = self._given.setdefault(execution, len(self._given))
        self.used += 1
        return self.outcomes[min(number, len(self.outcomes) - 1)]

    async def run(self, execution: tuple[str, str, int], arguments: inspect.BoundArguments) -> Any:
        if self.does is not None:
            self.used += 1
            value = self.does(*arguments.args, **arguments.kwargs)
            value = await value if inspect.isawaitable(value) else value
            if not is_batch(self.definition):
                refuse_result(self.definition, value)
            return value
        value = self.outcome(execution)
        if isinstance(value, BaseException):
            raise value
        return [value] * len(arguments.args[0]) if is_batch(self.definition) else value


def stub_of(
    definition: Definition,
    returns: object,
    raises: BaseException | type[BaseException] | None,
    outcomes: Sequence[object] | None,
    does: Callable[..., Any] | None,
    takes: float,
) -> Stub:
    """Return a stub; refuse what the function could not have done."""
    given = [returns is not None, raises is not None, outcomes is not None, does is not None]
    if sum(given) > 1:
        raise TypeError("a stub takes one of returns=, raises=, outcomes= and does=")
    if does is not None:
        if not callable(does):
            raise TypeError(f"does= takes a function, not {does!r}")
        return Stub(definition, (), does, takes)
    if outcomes is None:
        outcomes = (returns if raises is None else raises,)
    if not outcomes:
        raise ValueError("outcomes= takes at least one result or exception")
    made = list(map(_made, outcomes))
    for one in made:
        if not isinstance(one, BaseException):
            refuse_result(definition, one)
    return Stub(definition, made, None, takes)


def _made(outcome: Any) -> Any:
    """Return an exception for a class of exceptions, as `raise` does."""
    made: Any = outcome
    return made() if inspect.isclass(outcome) and issubclass(outcome, BaseException) else made


def refuse_result(definition: Definition, value: object) -> None:
    """Raise TypeError when the function could not have returned this."""
    where = f"a stub of {definition.word} {definition.name!r}, whose result"
    refuse_unfit(value, definition.result_type, where)


def refuse_arguments(definition: Definition, bound: inspect.BoundArguments) -> None:
    """Raise TypeError when the function was called with what it does not take."""
    if is_batch(definition):
        return  # its types are those of one item
    types = definition.parameter_types
    for name, value in bound.arguments.items():
        kind = definition.signature.parameters[name].kind
        if name not in types or kind in (kind.VAR_POSITIONAL, kind.VAR_KEYWORD):
            continue
        where = f"{definition.word} {definition.name!r}: its parameter {name!r}"
        refuse_unfit(value, types[name], where)


def is_batch(definition: Definition) -> bool:
    return isinstance(definition, TaskDefinition) and definition.batch is not None


def identity(definition: Definition) -> Identity:
    return definition.word, definition.module, definition.name, definition.version


class Stubs:
    """The stubs of an app, and all calls that came by."""

    def __init__(self) -> None:
        self._stubs: dict[Identity, Stub] = {}
        self._calls: dict[Identity, list[StubCall]] = {}

    def add(self, stub: Stub) -> Stub:
        self._stubs[identity(stub.definition)] = stub
        return stub

    def find(self, definition: Definition) -> Stub | None:
        return self._stubs.get(identity(definition))

    def unused(self) -> list[Stub]:
        return [stub for stub in self._stubs.values() if not stub.used]

    def of(self, definition: Definition) -> list[StubCall]:
        return list(self._calls.get(identity(definition), ()))

    def note(self, definition: Definition, call: StubCall) -> None:
        self._calls.setdefault(identity(definition), []).append(call)

    def note_once(self, definition: Definition, call: StubCall) -> None:
        """Note an execution of a workflow, whose code may be replayed any number of times."""
        known = {(one.run_id, one.attempt) for one in self.of(definition)}
        if (call.run_id, call.attempt) not in known:
            self.note(definition, call)


def bound_arguments(job: JobScope) -> inspect.BoundArguments:
    bound = job._signature.bind(*job._args, **job._kwargs)
    bound.apply_defaults()
    return bound
