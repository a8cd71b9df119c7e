"""Signals: typed messages to a run, and waiting for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from stepwell import _options as check
from stepwell._scopes import enter_workflow
from stepwell_runtime.core.commands import NO_DEFAULT, WaitCommand
from stepwell_runtime.definitions import Seconds

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")
D = TypeVar("D")


class Signal(Generic[T]):
    """The name of a message to a run, with the type of its value."""

    __slots__ = ("name", "type")

    name: str
    type: TypeForm[T]

    def __init__(self, name: str, type: TypeForm[T], /) -> None:
        if check.text(name, "Signal name") is None:
            raise TypeError("Signal takes a name and a type, such as Signal('approved', bool)")
        self.name = name
        self.type = type

    def __repr__(self) -> str:
        return f"Signal({self.name!r}, {getattr(self.type, '__name__', self.type)})"


@overload
async def wait_for_signal(signal: Signal[T], /, *, timeout: Seconds | None = None) -> T: ...
@overload
async def wait_for_signal(signal: Signal[T], /, *, timeout: Seconds, default: D) -> T | D: ...
@overload
async def wait_for_signal(
    signal: str, type: TypeForm[T], /, *, timeout: Seconds | None = None
) -> T: ...
@overload
async def wait_for_signal(
    signal: str, type: TypeForm[T], /, *, timeout: Seconds, default: D
) -> T | D: ...
@overload
async def wait_for_signal(signal: str, /, *, timeout: Seconds | None = None) -> object: ...
@overload
async def wait_for_signal(signal: str, /, *, timeout: Seconds, default: object) -> object: ...
async def wait_for_signal(
    signal: Signal[Any] | str,
    type: Any = Any,
    /,
    *,
    timeout: Seconds | None = None,
    default: Any = NO_DEFAULT,
) -> Any:
    """Wait for the oldest signal of this name that nobody took yet, and return its value.

    `timeout` in seconds; None waits for ever, 0 only looks. When it has passed, `default` is
    returned if there is one, else SignalTimeout is raised. Raises OutsideWorkflow.
    """
    enter_workflow("wait_for_signal()", "send the run a signal with `run.signal(…)`")
    name, wanted = named(signal, type)
    limit = check.span(timeout, "timeout")
    if limit is None and default is not NO_DEFAULT:
        raise ValueError(
            "wait_for_signal(default=…) is returned when timeout= has passed: give a timeout="
        )
    return await WaitCommand(name, wanted, limit, default)


def named(signal: Signal[Any] | str, type: Any = Any) -> tuple[str, Any]:
    """Return the name and the type that a signal argument means."""
    if isinstance(signal, Signal):
        if type is not Any:
            raise TypeError(f"{signal!r} has its type already: leave out the second argument")
        return signal.name, signal.type
    name = check.text(signal, "signal")
    if name is None:
        raise TypeError("a signal is named by a Signal or a string, not None")
    return name, type
