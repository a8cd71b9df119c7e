"""Exceptions as data: stored without their frames' locals, rebuilt without running `__init__`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import BuiltinFunctionType, GetSetDescriptorType, MemberDescriptorType, TracebackType
from typing import Any, Final

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

_NO_ATTRIBUTES: Final = msgspec.msgpack.encode({})
_OURS: Final = str(Path(__file__).parent.parent) + os.sep

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


class Stored(msgspec.Struct, omit_defaults=True):
    """An exception as it is written; those behind it are within."""

    type: str
    module: str
    message: str
    notes: list[str]
    frames: list[tuple[str, int, str]]
    ref: str | None = None
    args: bytes = b""
    attrs: bytes = b""
    why: str | None = None
    """Why it comes back as StepFailed; None = `ref`, `args` and `attrs` are what it is made of."""
    suppress: bool = False
    cause: Stored | None = None
    context: Stored | None = None
    members: list[Stored] | None = None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


def store_error(error: BaseException, where: str, limit: int) -> bytes:
    data = _store(error, where, limit, MAX_CHAIN)
    if len(data) > limit:
        data = _store(error, where, 0, MAX_CHAIN)
        if len(data) > limit:
            data = _store(error, where, 0, 0)
    return data


def _store(error: BaseException, where: str, content_limit: int, chain: int) -> bytes:
    described = _Description(where, content_limit).of(error, chain)
    return _encode(Ext(tags.ERROR, _encode(described)))


class _Description:
    """One exception with those behind it, each once, as plain data."""

    __slots__ = ("_left", "_limit", "_seen", "_where")

    def __init__(self, where: str, limit: int) -> None:
        self._where = where
        self._limit = limit
        self._seen: set[int] = set()
        self._left = MAX_MEMBERS

    def of(self, error: BaseException, chain: int) -> Stored:
        self._seen.add(id(error))
        kind = _kind_of(type(error))
        trace = error.__traceback__
        frames = _listed(trace, _OURS) or _listed(trace, ())  # without our own code that called it
        stored = Stored(kind.name, kind.module, _message(error), _notes(error), frames)
        self._add_contents(stored, error, kind)
        stored.suppress = error.__suppress_context__
        cause, context = error.__cause__, error.__context__
        if cause is not None and chain and id(cause) not in self._seen:
            stored.cause = self.of(cause, chain - 1)
        if context is not None and chain and id(context) not in self._seen:
            stored.context = self.of(context, chain - 1)
        if kind.is_group:
            stored.members = self._members(error, stored, chain)
        return stored

    def _members(self, group: Any, stored: Stored, chain: int) -> list[Stored]:
        members: tuple[BaseException, ...] = group.exceptions
        found: list[Stored] = []
        for member in members:
            if chain and self._left:
                self._left -= 1
                found.append(self.of(member, chain - 1))
        if len(found) < len(members):
            stored.notes.append(f"{len(members) - len(found)} members were left out here")
        return found

    def _add_contents(self, stored: Stored, error: BaseException, kind: _Kind) -> None:
        """Add `ref`, `args` and `attrs`, or `why`."""
        if kind.is_control:
            stored.why = "it would end the code that it is raised in"
            return
        try:
            ref = kind.ref if kind.is_current() else make_ref(kind.cls)
            # The arguments of a group are its message and members: both are kept apart.
            args = write([] if kind.is_group else list(error.args), self._limit)
            if kind.described or error.__dict__:
                attrs = write(dict(_attributes(error, kind)), self._limit)
            else:
                attrs = _NO_ATTRIBUTES
            if len(args) + len(attrs) > self._limit:
                raise TooMany
        except Refused as refused:
            place = f"{refused.path} is {refused.type_name}: " if refused.path else ""
            why = f"{place}{refused.reason}"
        except TooMany:
            why = "its content is too large"
        except Exception as failure:  # noqa: BLE001 - properties of a user's class may raise anything
            why = f"{type(failure).__name__} while reading its content"
        else:
            stored.ref, stored.args, stored.attrs = ref, args, attrs
            return
        stored.why = _clean(f"{self._where}: {why}" if self._where else why)


class _Kind:
    """What is the same for all exceptions of a class.

    `ref` is its reference, "" where it has none.
    """

    __slots__ = ("cls", "described", "is_control", "is_group", "module", "name", "new", "ref")

    def __init__(self, cls: type[Any], ref: str) -> None:
        self.cls, self.ref = cls, ref
        self.name, self.module = _clean(cls.__qualname__), _clean(cls.__module__)
        self.is_group, self.is_control = (
            issubclass(cls, BaseExceptionGroup),
            issubclass(cls, _CONTROL),
        )
        # The attributes that slots and C descriptors hold, and whether each is C's own.
        self.described = tuple(
            (name, base.__module__ == "builtins")
            for base in cls.__mro__[:-1]  # `object` has none that are content
            for name, found in base.__dict__.items()
            if name not in _NOT_CONTENT and isinstance(found, _DESCRIPTORS)
        )
        self.new = _builtin_new(cls)

    def is_current(self) -> bool:
        """Whether `ref` is sure to name the class still; False if it takes a closer look."""
        cls = self.cls
        module = sys.modules.get(cls.__module__)
        return self.ref != "" and getattr(module, cls.__qualname__, None) is cls


_kinds: dict[type, _Kind] = {}
_current: dict[str, _Kind] = {}


def _kind_of(cls: type[Any]) -> _Kind:
    kind = _kinds.get(cls)
    if kind is None:
        try:
            ref = make_ref(cls)
        except Exception:  # noqa: BLE001 - Refused, or whatever a `__getattr__` of its module raises
            return _Kind(cls, "")  # not kept, so that the class is not
        kind = _Kind(cls, ref)
        replaced = _current.get(ref)
        if replaced is not None:  # by a reload: the former class must not be kept alive
            _kinds.pop(replaced.cls, None)
        _current[ref] = _kinds[cls] = kind
    return kind


def _kind_named(ref: str) -> _Kind:
    """Raises MissingClass."""
    kind = _current.get(ref)
    return kind if kind is not None and kind.is_current() else _kind_of(find(ref))


def _builtin_new(cls: type) -> Any:
    """The `__new__` in C that makes the object; one in Python may ask for arguments."""
    for base in cls.__mro__:
        new = base.__dict__.get("__new__")
        if isinstance(new, BuiltinFunctionType):
            return new
    return BaseException.__new__


def _attributes(error: BaseException, kind: _Kind) -> Iterator[tuple[str, Any]]:
    for name, in_c in kind.described:
        value = getattr(error, name, None)
        # In C "not set" reads as None, and to set None is not the same: it shows in str().
        if value is not None or (not in_c and hasattr(error, name)):
            yield name, value
    for name, value in error.__dict__.items():
        if name not in _NOT_CONTENT:
            yield name, value


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


def _listed(entry: TracebackType | None, ours: str | tuple[str, ...]) -> list[tuple[str, int, str]]:
    """The frames from the first one that is not in `ours`."""
    frames: list[tuple[str, int, str]] = []
    while entry is not None:
        code = entry.tb_frame.f_code
        file = code.co_filename
        if frames or not file.startswith(ours):
            file = file if file.isascii() else _clean(file)
            frames.append((file, entry.tb_lineno, code.co_qualname))
        entry = entry.tb_next
    return frames if len(frames) <= MAX_FRAMES else frames[-MAX_FRAMES:]


def read_error(data: bytes) -> Stored:
    found = _decode(data)
    if not isinstance(found, Ext) or found.code != tags.ERROR:
        raise Unreadable("this is not a stored exception")
    return read_inner(found.data)


read_inner: Final = msgspec.msgpack.Decoder(Stored).decode
"""Reads what is within the extension."""


def raise_error(stored: Stored, reader: Reader) -> BaseException:
    """A fresh exception. StepFailed stands in for what cannot be built here."""
    try:
        error = _rebuild(stored, reader)
    except Exception as failure:  # noqa: BLE001 - the class may have changed in any way, or be gone
        error = _stand_in(stored, str(failure))
    for note in stored.notes:
        error.add_note(note)
    if stored.cause is not None:
        error.__cause__ = raise_error(stored.cause, reader)
    if stored.context is not None:
        error.__context__ = raise_error(stored.context, reader)
    error.__suppress_context__ = stored.suppress
    return error


def _rebuild(stored: Stored, reader: Reader) -> BaseException:
    if stored.ref is None:
        return _stand_in(stored, stored.why or "")
    kind = _kind_named(stored.ref)
    cls = kind.cls
    if not issubclass(cls, BaseException) or kind.is_control:
        return _stand_in(stored, f"{type_name(cls)} is not an exception class (any more)")
    new, args, attrs = kind.new, reader.decode(stored.args), reader.decode(stored.attrs)
    if stored.members is not None:
        members = [raise_error(member, reader) for member in stored.members]
        error: BaseException = new(cls, attrs.pop("message"), members)
    else:
        error = new(cls)
        error.args = tuple(args)
    for name, value in attrs.items():
        BaseException.__setattr__(error, name, value)
    return error


def _stand_in(stored: Stored, why: str) -> StepFailed:
    full_name = stored.type if stored.module == "builtins" else f"{stored.module}.{stored.type}"
    error = StepFailed(full_name, stored.message)
    error.add_note(f"{full_name} could not be kept as it was: {why}")
    return error


def describe_stored(stored: Stored) -> ErrorInfo:
    linked = stored.cause
    if linked is None and not stored.suppress:
        linked = stored.context
    return ErrorInfo(
        type=stored.type,
        module=stored.module,
        message=stored.message,
        frames=tuple(stored.frames),
        notes=tuple(stored.notes),
        cause=None if linked is None else describe_stored(linked),
        members=tuple(map(describe_stored, stored.members or ())),
    )
