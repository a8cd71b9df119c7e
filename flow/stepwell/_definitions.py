"""What a decorated function must be, and what is read from it at decoration."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeAlias, get_origin

from stepwell import _options as check
from stepwell._queues import Queue, declared_of, name_of
from stepwell._retention import Retention, named_keep
from stepwell._retention import retention as retention_option
from stepwell_runtime.definitions import Seconds, resolved_annotations
from stepwell_runtime.errors import DefinitionError

Fn = Callable[..., Any]
Executor = Literal["thread", "process"]
# Not `Callable[..., str]`: in pyright's strict mode that is no context for a lambda.
KeyOf: TypeAlias = (
    Callable[[Any], str]
    | Callable[[Any, Any], str]
    | Callable[[Any, Any, Any], str]
    | Callable[[Any, Any, Any, Any], str]
)
"""Makes a key of the arguments of a call."""


def common_fields(
    fn: Fn, word: str, name: str | None, version: int, queue: str | Queue | None
) -> dict[str, Any]:
    """Return the fields that every definition has; raise DefinitionError for what cannot be one."""
    refuse_unfit(fn, word)
    signature = signature_of(fn, word)
    # Unwrapped: else all that one decorator wraps would seem to stand in one place.
    inner = inspect.unwrap(inner_function(fn))
    code = getattr(inner, "__code__", None)
    return {
        "fn": fn,
        "name": durable_name(fn, word, name),
        "version": checked(word, fn, check.whole, version, "version", 1, 2**31 - 1),
        "queue": checked(word, fn, name_of, queue),
        "declared": declared_of(queue),
        "is_async": is_async(fn),
        "module": getattr(inner, "__module__", None) or "",
        "file": shown(inner) if code is None else code.co_filename,
        "line": 0 if code is None else code.co_firstlineno,
        "signature": signature,
        "plain_arity": plain_arity(signature),
    }


def checked(word: str, fn: Fn, rule: Callable[..., Any], value: Any, *rest: Any) -> Any:
    """Apply a check of `_options`; its refusal becomes a DefinitionError naming the function."""
    try:
        return rule(value, *rest)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"@{word} {shown(fn)}: {error}") from None


def timeout_of(word: str, fn: Fn, value: Seconds | None, what: str = "timeout") -> float | None:
    found: float | None = checked(word, fn, check.positive_seconds, value, what, "no limit")
    return found


def terms_of(
    word: str,
    fn: Fn,
    expires: Seconds | None,
    priority: int,
    key: KeyOf | None,
    retention: Retention | None,
    name: str,
) -> dict[str, Any]:
    """Return the fields of what its runs have unless their calls say otherwise."""
    if key is not None and not callable(key):
        raise DefinitionError(
            f"@{word} {shown(fn)}: key= takes a function of the arguments, such as "
            f"`lambda order: order.tenant`, not {key!r}; for one call use with_options(key=…)"
        )
    return {
        "expires": timeout_of(word, fn, expires, "expires"),
        "priority": checked(word, fn, check.priority, priority) or 0,
        "key": key,
        "retention": named_keep(name, checked(word, fn, retention_option, retention)),
    }


def executor_of(word: str, fn: Fn, value: Executor) -> Executor:
    """Return `executor=`; refuse to send what a child process could not execute."""
    checked(word, fn, check.one_of, value, "executor", ("thread", "process"))
    if value == "thread":
        return value
    where, qualname = f"@{word} {shown(fn)}", getattr(fn, "__qualname__", None)
    if is_async(fn):
        raise DefinitionError(
            f"{where}: executor='process' is for plain functions, and this is an `async def`, "
            "which runs in the event loop: make it a `def`"
        )
    if qualname is None or "<" in qualname or not _has_file(fn.__module__):
        raise DefinitionError(
            f"{where}: executor='process' needs a function that a child process can import by its "
            "name: write it with `def` at the top level of a module or script, not in a function, "
            "a shell or a notebook"
        )
    return value


def _has_file(module: str) -> bool:
    return module != "__main__" or hasattr(sys.modules[module], "__file__")


def refuse_unfit(fn: Fn, word: str) -> None:
    given: Any = fn
    if type(given) in (staticmethod, classmethod):
        kind = type(given).__name__
        raise DefinitionError(f"@{word} stands above @{kind}: put @{kind} above @{word}")
    if inspect.isclass(given) or not callable(given):
        raise DefinitionError(f"@{word} decorates a function, not {given!r}")
    if hasattr(given, "definition"):
        raise DefinitionError(
            f"{shown(fn)} is decorated already: use one of @workflow, @step and @task"
        )
    inner = inner_function(fn)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise DefinitionError(
            f"@{word} {shown(fn)} is a generator, whose values cannot be recorded one by one: "
            "return a list, or make each item a step of its own"
        )
    if word == "workflow" and not is_async(fn):
        raise DefinitionError(
            f"@workflow {shown(fn)} is a plain function: write `async def`, so that it can wait; "
            "blocking work belongs into a @step, which may be a plain function"
        )


def inner_function(fn: Fn) -> Fn:
    """Return the function that does the work of a partial or of a callable object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn if inspect.isroutine(fn) else type(fn).__call__


def is_async(fn: Fn) -> bool:
    inner = inner_function(fn)
    if inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(inspect.unwrap(inner)):
        return True
    return get_origin(inspect.signature(inner).return_annotation) in (Awaitable, Coroutine) or (
        isinstance(inspect.signature(inner).return_annotation, str)
        and get_origin(resolved_annotations(inner).get("return")) in (Awaitable, Coroutine)
    )


def signature_of(fn: Fn, word: str) -> inspect.Signature:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        raise DefinitionError(
            f"@{word} {shown(fn)} does not tell its parameters: wrap it in a function of your own"
        ) from None


def durable_name(fn: Fn, word: str, name: str | None) -> str:
    if name is not None:
        given: str = checked(word, fn, check.text, name, "name")
        return given
    qualname = getattr(fn, "__qualname__", None)
    if qualname is None or "<lambda>" in qualname:
        kind = (
            "a partial"
            if isinstance(fn, functools.partial)
            else "a lambda"
            if qualname
            else "a callable object"
        )
        raise DefinitionError(
            f"@{word} got {kind}, which has no name to find it by after a restart: give it name=…"
        )
    return str(qualname).replace("<locals>.", "")


def plain_arity(signature: inspect.Signature) -> tuple[int, int] | None:
    """Return the fewest and most positional arguments that fit; None if keywords are needed."""
    fewest = most = 0
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            most = sys.maxsize
        elif parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.default is parameter.empty:
                return None
        elif parameter.kind is not parameter.VAR_KEYWORD:
            most += 1
            fewest += parameter.default is parameter.empty
    return fewest, most


def shown(fn: Fn) -> str:
    return str(getattr(fn, "__qualname__", None) or repr(fn))
