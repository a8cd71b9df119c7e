"""Questions to a store: each is a value, as verbs are, and says what type its answer has."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import msgspec

R = TypeVar("R")


class Query(msgspec.Struct, Generic[R], frozen=True, array_like=True):
    """Asks for what the store knows, and changes nothing. `tag` is its number on the wire."""

    answer: ClassVar[Any] = None
    """The type of what it is answered by, as msgspec reads it."""


AnyQuery = Query[Any]
