"""Handing what was answered to whoever awaits it."""

from __future__ import annotations

import asyncio
from typing import TypeVar, cast

R = TypeVar("R")


def settle(answer: asyncio.Future[R], result: object) -> None:
    """Resolve `answer` with a result, or the exception that refused it, if it is still awaited."""
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(cast("R", result))
