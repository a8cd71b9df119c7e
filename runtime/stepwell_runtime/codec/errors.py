"""Errors of the codec: values that cannot be stored, and stored data that this code cannot read."""

from __future__ import annotations

from typing import Final

from stepwell_queue.errors import StepwellError

_LONG_PATH: Final = 200


class SerializationError(StepwellError):
    """A value cannot be stored, or data from outside does not fit; nothing was changed.

    `where` names the step or argument, `path` the place inside the value, `type_name` the type
    found there.
    """

    def __init__(self, where: str, path: str, type_name: str, reason: str) -> None:
        place = f"{where or 'value'}, at {path}" if path else where or "value"
        super().__init__(f"{place}: {type_name}: {reason}")
        self.where, self.path, self.type_name, self.reason = where, path, type_name, reason


class PayloadTooLarge(SerializationError):
    """A value is larger, once encoded, than the limit per value (bytes); retrying does not help.

    `size` is None when counting stopped before the value was encoded.
    """

    def __init__(self, where: str, type_name: str, size: int | None, limit: int) -> None:
        found = f"{size:,} bytes" if size is not None else "more elements than bytes allowed"
        super().__init__(
            where,
            "",
            type_name,
            f"{found} encoded, the limit is {limit:,} bytes: store the data outside (a file, an "
            "object store, a table) and pass its key or path, or raise the limit",
        )
        self.size, self.limit = size, limit


class DecodingError(StepwellError):
    """Stored data cannot be decoded by this code: a class is gone, or a required field is missing.

    `path` names the class that could not be built, when one is to blame.
    """

    def __init__(self, where: str, path: str, reason: str) -> None:
        place = f"{where or 'stored value'} ({path})" if path else where or "stored value"
        super().__init__(f"{place}: {reason}")
        self.where, self.path, self.reason = where, path, reason


class Refused(Exception):  # becomes a SerializationError at the surface
    """Raised at a leaf; each container on the way up adds its step to the path."""

    def __init__(self, type_name: str, reason: str) -> None:
        super().__init__(reason)
        self.type_name, self.reason = type_name, reason
        self.steps: list[str] = []

    @property
    def path(self) -> str:
        path = "".join(reversed(self.steps))
        return path if len(path) <= _LONG_PATH else f"{path[:80]}...{path[-80:]}"


class TooMany(Exception):  # becomes PayloadTooLarge at the surface
    """More elements were visited than the limit has bytes."""


class Unreadable(Exception):  # becomes a DecodingError at the surface
    """Stored data cannot be read; `ref` is the class to blame, if any."""

    def __init__(self, reason: str, ref: str = "") -> None:
        super().__init__(reason)
        self.reason, self.ref = reason, ref


class MissingClass(Unreadable):
    """A stored class cannot be found, or must not be imported."""
