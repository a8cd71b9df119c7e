"""What may be handed to the primitives, and how a mistake is described."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any

from stepwell._calls import is_call
from stepwell._decorated import Decorated


def branches(what: str, given: tuple[Any, ...]) -> tuple[Awaitable[Any], ...]:
    """Return the branches, handed on; what is refused leaves no warning about its coroutines."""
    try:
        check_branches(what, given)
    except (TypeError, ValueError):
        drop(given)
        raise
    for item in given:
        if is_call(item):
            item.hand_on()
    return given


def drop(given: tuple[Any, ...]) -> None:
    """Give up what was to be run, so that Python does not warn of it."""
    for item in given:
        if inspect.iscoroutine(item):
            item.close()
        elif is_call(item):
            item.hand_on()


def check_branches(what: str, given: tuple[Any, ...]) -> None:
    seen: set[int] = set()
    for position, item in enumerate(given, 1):
        if is_call(item):
            continue
        if not inspect.iscoroutine(item):
            raise TypeError(
                f"{what} takes calls and coroutines; argument {position} is {described(item)}"
            )
        if id(item) in seen:
            raise ValueError(
                f"{what} got one coroutine twice (again as argument {position}): "
                "call the function twice"
            )
        seen.add(id(item))


def described(value: Any) -> str:
    """Say what `value` is, with the remedy where it is a common slip."""
    if isinstance(value, Decorated):
        name = value.name
        return f"the {value.definition.word} {name} itself: call it, {name}(…)"
    if inspect.isfunction(value):
        return f"the function {value.__qualname__} itself: call it, {value.__qualname__}(…)"
    if inspect.isgenerator(value):
        return "a generator: unpack it with *"
    for kind in (list, tuple, set):
        if isinstance(value, kind):
            return f"a {kind.__name__}: unpack it with *"
    return repr(value)
