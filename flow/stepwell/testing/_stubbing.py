"""How a test says what stands in for code, and asks what was executed."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from stepwell import _options as check
from stepwell._decorated import Step, Task, Workflow
from stepwell._primitives import sleep
from stepwell._scopes import current_run
from stepwell.testing._stubs import Stub, StubCall, Stubs, refuse_arguments, stub_of
from stepwell_runtime.definitions import Definition, Seconds, WorkflowDefinition

if TYPE_CHECKING:
    from stepwell.testing._clock import VirtualClock
    from stepwell_queue.contract import Identity

P = ParamSpec("P")
R = TypeVar("R")


class Stubbing:
    """The part of a TestApp that has to do with stubs."""

    virtual: VirtualClock
    _stubs: Stubs
    _served: dict[Identity, Definition]
    _first_moment: float

    def stub(
        self,
        target: Step[P, R, Any] | Task[P, R, Any] | Workflow[P, R],
        /,
        *,
        returns: R | None = None,
        raises: BaseException | type[BaseException] | None = None,
        outcomes: Sequence[R | BaseException | type[BaseException]] | None = None,
        does: Callable[P, object] | None = None,
        takes: Seconds = 0.0,
    ) -> Stub:
        """Execute something else in place of a step, task or child workflow, in this app alone.

        It returns `returns`, or raises `raises`, or has one of `outcomes` after another, the last
        one for ever, or calls `does` with its arguments; `takes`: seconds of virtual time that it
        needs. Raises TypeError for a result that does not fit. A second stub replaces the first.
        """
        definition = definition_of(target)
        seconds = check.span(takes, "takes") or 0.0
        stub = self._stubs.add(stub_of(definition, returns, raises, outcomes, does, seconds))
        self._serve_stubs()
        return stub

    def calls(
        self, target: Step[..., Any, Any] | Task[..., Any, Any] | Workflow[..., Any], /
    ) -> list[StubCall]:
        """Return the executions of a step or task, stubbed or not, or of a stubbed workflow."""
        definition = definition_of(target)
        if isinstance(definition, WorkflowDefinition) and self._stubs.find(definition) is None:
            raise ValueError(
                f"workflow {definition.name!r} has no stub here, so its calls are not noted: ask "
                f"for its runs, with app.runs(name={definition.name!r})"
            )
        return self._stubs.of(definition)

    def unused_stubs(self) -> list[Stub]:
        """Return the stubs that nothing has called."""
        return self._stubs.unused()

    def _serve_stubs(self) -> None:
        for identity, definition in self._served.items():
            stub = self._stubs.find(definition)
            if stub is not None and isinstance(definition, WorkflowDefinition):
                self._served[identity] = dataclasses.replace(
                    definition, fn=self._workflow(stub, definition)
                )

    def _workflow(self, stub: Stub, definition: Definition) -> Callable[..., Any]:
        async def stubbed(*args: Any, **kwargs: Any) -> Any:
            facts = current_run()
            bound = definition.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            refuse_arguments(definition, bound)
            at = self.virtual.now() - self._first_moment
            execution = facts.id, "", facts.attempt
            self._stubs.note_once(
                definition,
                StubCall(definition.name, dict(bound.arguments), *execution, "", at),
            )
            await sleep(stub.takes)
            return await stub.run(execution, bound)

        return stubbed


def definition_of(target: object) -> Definition:
    if isinstance(target, (Step, Task, Workflow)):
        definition: Definition = target.definition
        return definition
    hint = ""
    if inspect.isfunction(target):
        hint = ": only decorated functions are executed by workers"
    raise TypeError(f"this takes a step, task or workflow, not {target!r}{hint}")
