"""Exceptions as data: stored without their frames' locals, rebuilt without running `__init__`."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import msgspec

from stepwell_runtime.codec import _tags as tags
from stepwell_runtime.codec._read import Reader
from stepwell_runtime.codec._refs import find, make_ref, type_name, type_of
from stepwell_runtime.codec._write import Ext, write
from stepwell_runtime.codec.errors import Refused, TooMany, Unreadable
from stepwell_runtime.errors import StepFailed

MAX_FRAMES: Final = 50
MAX_CHAIN: Final = 8
MAX_MEMBERS: Final = 100  # in all, however groups are nested
MAX_NOTES: Final = 100
MAX_TEXT: Final = 16_384

_DESCRIPTORS: Final = (MemberDescriptorType, GetSetDescriptorType)

_encoder = msgspec.msgpack.Encoder()

# Thrown into a coroutine they would end it, or become a RuntimeError, instead of being caught.
_CONTROL: Final = (StopIteration, StopAsyncIteration, GeneratorExit)
# Kept apart, or (`obj`) a reference to anything at all that only helps to suggest a spelling.
_NOT_CONTENT: Final = frozenset(
    {
        "args",
        "obj",
        "exceptions",
        "__dict__",
        "__weakref__",
        "__notes__",
        "__cause__",
        "__context__",
        "__traceback__",
        "__suppress_context__",
    }
)


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An exception as it was stored, for display; nothing is imported to read it.

    `frames` are (file, line, function), outermost first. `cause` is what it was raised from, or
    while handling.
    """

    type: str
    module: str
    message: str
    frames: tuple[tuple[str, int, str], ...] = ()
    notes: tuple[str, ...] = ()
    cause: ErrorInfo | None = None
    members: tuple[ErrorInfo, ...] = field(default=())


def store_error(error: BaseException, where: str, limit: int) -> bytes:
    for content_limit, chain in ((limit, MAX_CHAIN), (0, MAX_CHAIN), (0, 0)):
        described = _Description(where, content_limit).of(error, chain)
        data = _encoder.encode(Ext(tags.ERROR, _encoder.encode(described)))
        if len(data) <= limit:
            break
    return data


class _Description:
    """One exception with those behind it, each once, as plain data."""

    def __init__(self, where: str, limit: int) -> None:
        self._where = where
        self._limit = limit
        self._seen: set[int] = set()
        self._left = MAX_MEMBERS

    def of(self, error: BaseException, chain: int) -> dict[str, Any]:
        self._seen.add(id(error))
        cls = type(error)
        described: dict[str, Any] = {
            "type": _clean(cls.__qualname__),
            "module": _clean(cls.__module__),
            "message": _message(error),
            "notes": _notes(error),
            "frames": _frames(error),
            **self._contents(error),
        }
        if error.__suppress_context__:
            described["suppress"] = True
        for key, linked in (("cause", error.__cause__), ("context", error.__context__)):
            if linked is not None and chain and id(linked) not in self._seen:
                described[key] = self.of(linked, chain - 1)
        members = _members(error)
        if members is not None:
            described["members"] = self._members(members, described, chain)
        return described

    def _members(
        self, members: tuple[BaseException, ...], described: dict[str, Any], chain: int
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for member in members:
            if chain and self._left:
                self._left -= 1
                found.append(self.of(member, chain - 1))
        if len(found) < len(members):
            described["notes"].append(f"{len(members) - len(found)} members were left out here")
        return found

    def _contents(self, error: BaseException) -> dict[str, Any]:
        """`ref`, `args` and `attrs`, or `why`: the reason why it comes back as StepFailed."""
        if isinstance(error, _CONTROL):
            return {"why": "it would end the code that it is raised in"}
        # The arguments of a group are its message and members: both are kept apart.
        content: list[Any] = list(error.args) if _members(error) is None else []
        try:
            ref = make_ref(type(error))
            args = write(content, self._limit)
            attrs = write(dict(_attributes(error)), self._limit)
            if len(args) + len(attrs) > self._limit:
                raise TooMany
            return {"ref": ref, "args": args, "attrs": attrs}
        except Refused as refused:
            place = f"{refused.path} is {refused.type_name}: " if refused.path else ""
            why = f"{place}{refused.reason}"
        except TooMany:
            why = "its content is too large"
        except Exception as failure:  # noqa: BLE001 - properties of a user's class may raise anything
            why = f"{type(failure).__name__} while reading its content"
        return {"why": _clean(f"{self._where}: {why}" if self._where else why)}


def _members(error: BaseException) -> tuple[BaseException, ...] | None:
    is_group = isinstance(error, BaseExceptionGroup)
    return cast(Any, error).exceptions if is_group else None


def _attributes(error: BaseException) -> Iterator[tuple[str, Any]]:
    for name, in_c in _described_names(type(error)):
        value = getattr(error, name, None)
        # In C "not set" reads as None, and to set None is not the same: it shows in str().
        if value is not None or (not in_c and hasattr(error, name)):
            yield name, value
    for name, value in error.__dict__.items():
        if name not in _NOT_CONTENT:
            yield name, value


def _described_names(cls: type) -> tuple[tuple[str, bool], ...]:
    """Return the attributes that slots and C descriptors hold, and whether each is C's own."""
    names = _names.get(cls)
    if names is None:
        names = _names[cls] = tuple(
            (name, base.__module__ == "builtins")
            for base in cls.__mro__[:-1]  # `object` has none that are content
            for name, found in base.__dict__.items()
            if name not in _NOT_CONTENT and isinstance(found, _DESCRIPTORS)
        )
    return names


_names: WeakKeyDictionary[type, tuple[tuple[str, bool], ...]] = WeakKeyDictionary()


def _message(error: BaseException) -> str:
    try:
        return _clean(str(error))
    except Exception:  # noqa: BLE001 - a user's __str__ must not hide the error that is being stored
        return f"<unprintable {type(error).__name__}>"


def _clean(text: str) -> str:
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}... ({len(text) - MAX_TEXT:,} more characters)"


def _notes(error: BaseException) -> list[str]:
    notes: Any = getattr(error, "__notes__", ())
    kind = type_of(notes)
    if kind is not list:
        return []
    return [_clean(note) for note in notes[:MAX_NOTES] if isinstance(note, str)]


def _frames(error: BaseException) -> list[tuple[str, int, str]]:
    frames = [
        (_clean(frame.f_code.co_filename), line, frame.f_code.co_qualname)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    return frames[-MAX_FRAMES:]


def read_error(data: bytes) -> dict[str, Any]:
    found = msgspec.msgpack.decode(data)
    if not isinstance(found, Ext) or found.code != tags.ERROR:
        raise Unreadable("this is not a stored exception")
    return msgspec.msgpack.decode(found.data, type=dict[str, Any])


def raise_error(described: dict[str, Any], reader: Reader) -> BaseException:
    """A fresh exception. StepFailed stands in for what cannot be built here."""
    members = [raise_error(member, reader) for member in described.get("members", ())]
    try:
        error = _rebuild(described, members, reader)
    except Exception as failure:  # noqa: BLE001 - the class may have changed in any way, or be gone
        error = _stand_in(described, str(failure))
    for note in described["notes"]:
        error.add_note(note)
    for key in ("cause", "context"):
        if key in described:
            setattr(error, f"__{key}__", raise_error(described[key], reader))
    error.__suppress_context__ = described.get("suppress", False)
    return error


def _rebuild(
    described: dict[str, Any], members: list[BaseException], reader: Reader
) -> BaseException:
    if "ref" not in described:
        return _stand_in(described, described["why"])
    cls: type[Any] = find(described["ref"])
    if not issubclass(cls, BaseException) or issubclass(cls, _CONTROL):
        return _stand_in(described, f"{type_name(cls)} is not an exception class (any more)")
    args = reader.decode(described["args"])
    attrs = reader.decode(described["attrs"])
    new = _builtin_new(cls)
    if "members" in described:
        error: BaseException = new(cls, attrs.pop("message"), members)
    else:
        error = new(cls)
        error.args = tuple(args)
    for name, value in attrs.items():
        BaseException.__setattr__(error, name, value)
    return error


def _builtin_new(cls: type) -> Any:
    """The `__new__` in C that makes the object; one in Python may ask for arguments."""
    for base in cls.__mro__:
        new = base.__dict__.get("__new__")
        if isinstance(new, BuiltinFunctionType):
            return new
    return BaseException.__new__


def _stand_in(described: dict[str, Any], why: str) -> StepFailed:
    module, name = described["module"], described["type"]
    full_name = name if module == "builtins" else f"{module}.{name}"
    error = StepFailed(full_name, described["message"])
    error.add_note(f"{full_name} could not be kept as it was: {why}")
    return error


def describe_stored(described: dict[str, Any]) -> ErrorInfo:
    linked = described.get("cause")
    if linked is None and not described.get("suppress"):
        linked = described.get("context")
    return ErrorInfo(
        type=described["type"],
        module=described["module"],
        message=described["message"],
        frames=tuple((file, line, function) for file, line, function in described["frames"]),
        notes=tuple(described["notes"]),
        cause=None if linked is None else describe_stored(linked),
        members=tuple(describe_stored(member) for member in described.get("members", ())),
    )
