"""Steps that nobody executes: a test says what they return."""

from __future__ import annotations

from typing import Any

from stepwell import Call, step, workflow


@step
async def a(x: Any = None) -> Any: ...


@step
async def b(x: Any = None) -> Any: ...


@step
async def c(x: Any = None) -> Any: ...


@step
async def undo(x: Any = None) -> Any: ...


def unbook(x: Any) -> Call[Any]:
    return undo(x)


@step(compensate=unbook)
async def book(x: Any = None) -> Any: ...


@step(on_cancel="interrupt")
async def interruptible(x: Any = None) -> Any: ...


@workflow(name="child of a replayed run")
async def child(x: Any = None) -> Any: ...
