"""What a workflow says while it runs, and the questions that it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from stepwell import _options as check
from stepwell._scopes import enter_workflow
from stepwell_queue.contract import NoteKind
from stepwell_queue.errors import StepwellError
from stepwell_runtime.core.commands import QuestionCommand
from stepwell_runtime.definitions import Seconds
from stepwell_runtime.errors import OutsideWorkflow
from stepwell_runtime.fitting import refuse_unfit
from stepwell_runtime.reports import checked_name
from stepwell_runtime.scope import JobScope, scope_here

if TYPE_CHECKING:
    from typing_extensions import TypeForm

Q = TypeVar("Q")
A = TypeVar("A")


def set_value(name: str, value: object, /) -> None:
    """Publish a value of the running workflow, for `Run.value(name)`; the last one counts.

    It is there once what came before it is durable, and stays after the end. Raises
    OutsideWorkflow, SerializationError; PayloadTooLarge over 256 KiB; ValueError over 100 names.
    """
    scope = enter_workflow("set_value()", "use current_step().report(), or return the value")
    checked_name(name, "set_value()")
    if not scope.closing:
        scope.say(NoteKind.VALUE, name, value)


def emit(name: str, item: object, /) -> None:
    """Add an item to a stream of the run, for `Run.stream(name)`; in a workflow, step or task.

    Items of a workflow are there exactly once; what an attempt of a step has emitted stays, also if
    it fails. Raises SerializationError; PayloadTooLarge over 256 KiB; StreamFull over 10,000 items
    of a workflow's code, over 100,000 of the steps of a run, or 16 MiB of either.
    """
    scope = scope_here()
    if isinstance(scope, JobScope):
        scope.emit(name, item)
        return
    if scope is None:
        raise OutsideWorkflow(
            "emit()",
            "call it from a function that is decorated; in a thread of your own, use the emit() of "
            "what current_step() returned",
            "a workflow, step or task",
        )
    checked_name(name, "emit()")
    scope = enter_workflow("emit()", "")
    if not scope.closing:
        scope.say(NoteKind.ITEM, name, item)


class Ask(Generic[Q, A]):
    """The name of a question to a run, with the types of its payload and of its answer."""

    __slots__ = ("answer", "name", "question")

    name: str
    question: TypeForm[Q]
    answer: TypeForm[A]

    def __init__(self, name: str, question: TypeForm[Q], answer: TypeForm[A], /) -> None:
        if check.text(name, "Ask name") is None:
            raise TypeError("Ask takes a name and two types, such as Ask('approve', Amount, bool)")
        self.name, self.question, self.answer = name, question, answer

    def __repr__(self) -> str:
        types = (getattr(one, "__name__", one) for one in (self.question, self.answer))
        return f"Ask({self.name!r}, {', '.join(map(str, types))})"


class Question(Generic[Q, A]):
    """A question that a workflow has taken. It answers it once, or refuses it."""

    __slots__ = ("_answered", "_ask", "_uid", "payload")

    def __init__(self, ask: Ask[Q, A], uid: str, payload: Q) -> None:
        self._ask, self._uid, self._answered = ask, uid, False
        self.payload = payload

    def __repr__(self) -> str:
        return f"<question {self._ask.name!r}: {self.payload!r}>"

    def answer(self, value: A, /) -> None:
        """Give the answer. Raises TypeError, SerializationError; StepwellError the second time."""
        refuse_unfit(value, self._ask.answer, f"the answer to {self._ask.name!r}")
        self._say(NoteKind.ANSWER, value)

    def refuse(self, reason: str, /) -> None:
        """Give no answer: who asked gets AskRefused. Raises StepwellError the second time."""
        if not isinstance(reason, str):  # pyright: ignore[reportUnnecessaryIsInstance] - of users
            raise TypeError(f"refuse() takes a text, not {reason!r}")
        self._say(NoteKind.REFUSAL, reason)

    def _say(self, kind: NoteKind, value: object) -> None:
        scope = enter_workflow("the answer to a question", "return it to the workflow")
        if scope.closing:
            return
        if self._answered:
            raise StepwellError(
                f"question {self._ask.name!r} was answered already: each is answered once"
            )
        scope.say(kind, self._uid, value)
        self._answered = True


async def wait_for_ask(ask: Ask[Q, A], /, *, timeout: Seconds | None = None) -> Question[Q, A]:
    """Wait for the oldest question of this name that nobody took yet.

    One whose payload does not fit is refused by itself. `timeout` in seconds; None waits for ever,
    0 only looks; then AskTimeout. Raises OutsideWorkflow.
    """
    enter_workflow("wait_for_ask()", "ask the run with `run.ask(…)`")
    given: Any = ask
    if not isinstance(given, Ask):
        raise TypeError(f"wait_for_ask() takes an Ask, not {ask!r}")
    uid, payload = await QuestionCommand(ask.name, ask.question, check.span(timeout, "timeout"))
    return Question(ask, uid, payload)
