"""Settings of an app, checked when it is constructed."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from stepwell import _options as check
from stepwell._retention import Retention
from stepwell_queue.errors import StepwellError
from stepwell_queue.tcp.access import Access
from stepwell_runtime.child import refuse_while_importing
from stepwell_runtime.definitions import Seconds
from stepwell_runtime.middleware import Middleware
from stepwell_runtime.retention import Archive

if TYPE_CHECKING:
    from stepwell._app.app import Stepwell

Durability = Literal["full", "process"]
Lifespan = Callable[["Stepwell"], AbstractAsyncContextManager[Any]]
DEFAULT_VALUE_SIZE = 4 * 1024 * 1024


# Half of what one write to the store takes: a result, and what is written along with it.
LARGEST_VALUE = 32 * 1024 * 1024


@dataclass(frozen=True)
class Settings:
    store: str | Path
    lifespan: Lifespan | None
    include: frozenset[str] | None
    durability: Durability | None
    max_value_size: int
    retention: Retention | None
    middleware: tuple[Middleware, ...]
    access: Access | None
    timeout: Seconds
    code: str | None = None
    archive: Archive | None = None

    def __post_init__(self) -> None:
        store: Any = self.store
        if not isinstance(store, (str, Path)) or not str(store):
            raise TypeError(f"a store is a path or a URL, such as 'orders.db', not {store!r}")
        if self.durability is not None:
            check.one_of(self.durability, "durability", ("full", "process"))
        if not check.span(self.timeout, "timeout"):
            raise ValueError("timeout= must be more than 0 seconds: a server needs time to answer")
        check.whole(self.max_value_size, "max_value_size", 1024, LARGEST_VALUE)
        if self.lifespan is not None and not callable(self.lifespan):
            raise TypeError(
                "lifespan= takes a function of the app that returns an async context manager, "
                f"not {self.lifespan!r}"
            )
        check.text(self.code, "code")
        retention: Any = self.retention
        if retention is not None and not isinstance(retention, Retention):
            raise TypeError(f"retention= takes Retention(age=…, count=…), not {retention!r}")
        if self.archive is not None and not inspect.iscoroutinefunction(self.archive):
            raise TypeError(
                f"archive= takes an `async def` of a list of ArchivedRun, not {self.archive!r}"
            )
        access: Any = self.access
        if access is not None and not isinstance(access, Access):
            raise TypeError(f"access= takes Access(token=…, …), not {type(access).__name__}")

    @property
    def timeout_seconds(self) -> float:
        """The timeout in seconds."""
        return check.span(self.timeout, "timeout") or 0.0


def checked_middleware(middleware: Sequence[Middleware]) -> tuple[Middleware, ...]:
    """Return the middleware of an app; raise TypeError for what is none."""
    given: Any = middleware
    if isinstance(given, Middleware):
        raise TypeError("middleware= takes a list: write middleware=[…]")
    for one in given:
        if not isinstance(one, Middleware):
            hint = ": make an object of it" if isinstance(one, type) else ""
            raise TypeError(f"middleware= takes objects of class Middleware, not {one!r}{hint}")
        for name in ("before", "after", "around"):
            if not inspect.iscoroutinefunction(getattr(one, name)):
                raise TypeError(f"{type(one).__qualname__}.{name} must be an `async def`")
    return tuple(given)


def module_names(include: Iterable[ModuleType | str] | None) -> frozenset[str] | None:
    """Return the names of the modules that an app is limited to; None = no limit."""
    if include is None:
        return None
    given: Any = include
    if isinstance(given, (str, ModuleType)):
        raise TypeError(f"include= takes a list of modules, not {given!r}: write include=[…]")
    return frozenset(module_name(module) for module in given)


def module_name(module: Any) -> str:
    if isinstance(module, ModuleType):
        return module.__name__
    if not isinstance(module, str):
        raise TypeError(f"include= takes modules or their names, not {module!r}")
    if module not in sys.modules:
        raise ValueError(f"include= names {module!r}, which is not imported: import it first")
    return module


def refuse_place() -> None:
    """Raise where no app can be opened."""
    refuse_while_importing()
    if sys.platform not in ("linux", "darwin"):
        raise StepwellError(
            f"Stepwell runs on Linux and macOS, not on {sys.platform!r}: "
            "it relies on their file locks and on fsync (on Windows, use WSL 2)"
        )
