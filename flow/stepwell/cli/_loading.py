"""The user's module, and what is found in it."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from dataclasses import replace
from types import ModuleType
from typing import Any, TypeVar

from stepwell._app.app import Stepwell
from stepwell._blocking.app import BlockingStepwell
from stepwell._decorated import Step, Task, Workflow
from stepwell._signals import Signal
from stepwell.cli._client import existing, opened, store_address
from stepwell.cli._refusal import Refusal, refusals
from stepwell_queue.contract import Kind
from stepwell_queue.errors import StepwellError
from stepwell_runtime.definitions import Definition

T = TypeVar("T")

MISSING = object()


def split(spec: str, what: str) -> tuple[str, str | None]:
    """Return module and attribute of `MODULE[:attribute]`."""
    module, colon, attribute = spec.partition(":")
    if not module or (colon and not attribute):
        raise Refusal(f"{spec!r}: write {what}")
    if "/" in module or module.endswith(".py"):
        raise Refusal(f"{module!r} is a file: give the module's name, as in an import statement")
    return module, attribute or None


def imported(name: str) -> ModuleType:
    """Import a module as `python -m` would: the current folder comes first."""
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path holds strings
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - likewise
    try:
        with redirect_stdout(sys.stderr):  # stdout is for the answer
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise Refusal(
                f"no module {error.name!r} in {os.getcwd()} or on Python's path: "  # noqa: PTH109
                "check its name, and the folder where you are"
            ) from None
        raise Refusal(failed_import(name, error)) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's module raises
        raise Refusal(failed_import(name, error)) from None


def failed_import(name: str, error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, StepwellError | SyntaxError):
        place = ""  # their messages say where
    return f"importing {name!r} failed with {said}{place}"


def attribute_of(module: ModuleType, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, MISSING)
    return found


def app_of(module: ModuleType, attribute: str | None, store: str | None) -> Stepwell:
    """Return the module's app; `store` replaces the store that it names."""
    app = chosen_app(module, attribute, store)
    if store is not None:
        found = store_address(store)
        if isinstance(found, str):  # a server's durability is its own business
            app.settings = replace(app.settings, store=found, durability=None)
        else:  # and a file asks for no token
            app.settings = replace(app.settings, store=found, access=None)
    return app


def in_app(module: str, store: str | None, work: Callable[[Stepwell], Awaitable[T]]) -> T:
    """Open the app of a module, do the work and close it; refuse a store that is not there."""

    async def inside(app: Stepwell) -> T:
        async with opened(app):
            return await work(app)

    with refusals():
        found, attribute = split(module, "MODULE or MODULE:app")
        app = app_of(imported(found), attribute, store)
        existing(str(app.settings.store))
        return asyncio.run(inside(app))


def chosen_app(module: ModuleType, attribute: str | None, store: str | None) -> Stepwell:
    name = module.__name__
    apps = {key: it for key, it in vars(module).items() if isinstance(it, Stepwell)}
    if attribute is not None:
        return named_app(module, attribute, list(apps))
    if "app" in apps:
        return apps["app"]
    distinct = {id(it): it for it in apps.values()}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    if distinct:
        raise Refusal(f"{name!r} has several apps: say which, {name}:{f' or {name}:'.join(apps)}")
    if store is not None:
        return Stepwell(store_address(store))
    hint = "give --store, or write `app = Stepwell('orders.db')` there"
    if any(isinstance(it, BlockingStepwell) for it in vars(module).values()):
        hint = "it has a BlockingStepwell, which serves threads: give --store"
    raise Refusal(f"{name!r} has no Stepwell instance: {hint}")


def named_app(module: ModuleType, attribute: str, apps: list[str]) -> Stepwell:
    found = attribute_of(module, attribute)
    where = f"{module.__name__}:{attribute}"
    others = f"; its apps: {', '.join(apps)}" if apps else ""
    if found is MISSING:
        raise Refusal(f"{where}: there is no {attribute!r} in that module{others}")
    if not isinstance(found, Stepwell):
        raise Refusal(f"{where} is a {type(found).__name__}, not a Stepwell instance{others}")
    return found


def definition_of(module: ModuleType, name: str, app: Stepwell) -> Definition:
    """Return the workflow or task: an attribute of the module, or the durable name of one."""
    found = attribute_of(module, name)
    if isinstance(found, Step):
        raise Refusal(f"{name!r} is a step: a step runs in a workflow; start the workflow")
    if isinstance(found, Workflow | Task):
        definition: Definition = found.definition
        return definition
    known = [one for one in app.definitions().values() if one.kind != Kind.STEP]
    versions = [one for one in known if one.name == name]
    if not versions:
        names = ", ".join(sorted({one.name for one in known})) or "none"
        raise Refusal(f"{module.__name__!r} has no workflow or task {name!r}; it has: {names}")
    return max(versions, key=lambda one: one.version)


def signal_of(module: ModuleType, name: str) -> Signal[Any]:
    values: list[Any] = list(vars(module).values())
    signals: list[Signal[Any]] = [it for it in values if isinstance(it, Signal)]
    for signal in signals:
        if signal.name == name:
            return signal
    names = ", ".join(sorted({one.name for one in signals})) or "none"
    raise Refusal(f"{module.__name__!r} has no Signal named {name!r}; it has: {names}")
