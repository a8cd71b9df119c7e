"""The codec: values to bytes and back."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, TypeVar

from stepwell_runtime.codec import _convert, _display
from stepwell_runtime.codec._exceptions import (
    ErrorInfo,
    describe_stored,
    raise_error,
    read_error,
    store_error,
)
from stepwell_runtime.codec._hints import find_subclass, reachable, sole_class
from stepwell_runtime.codec._plans import Plan, import_plan, is_data_class, plan_or_unreadable
from stepwell_runtime.codec._read import PlanFor, Reader, top_ref
from stepwell_runtime.codec._refs import plain_ref, short_name, type_name, type_of
from stepwell_runtime.codec._write import (
    SCALARS,
    encode_native,
    write,
    write_canonical,
)
from stepwell_runtime.codec.errors import (
    DecodingError,
    MissingClass,
    PayloadTooLarge,
    Refused,
    SerializationError,
    TooMany,
    Unreadable,
)

_C = TypeVar("_C", bound=type)
_DIGEST_SIZE = 12
_MAX_READERS = 1024


class Codec:
    """Encodes values so that they come back equal and of the same type, or refuses them.

    `max_size` is the limit per encoded value in bytes.
    """

    read: Callable[[bytes], Any]
    """`decode` of trusted data without its care: whatever it raises, `decode` then says or mends.

    It is the decoder itself, in C, and another one after `register`.
    """

    def __init__(self, max_size: int = 4 * 1024 * 1024) -> None:
        if max_size <= 0:
            raise ValueError(f"max_size must be a positive number of bytes, not {max_size!r}")
        self.max_size = max_size
        self._registered: dict[str, type] = {}
        self._read_with(import_plan)
        self._outside: dict[Any, Reader] = {}

    def register(self, cls: _C, *, formerly: tuple[str, ...] = ()) -> _C:
        """Let data from outside name this class. `formerly`: old names, as "module:qualname"."""
        for name in (f"{cls.__module__}:{cls.__qualname__}", *formerly):
            self._registered[name] = cls
        self._read_with(self._registered_or_imported)
        self._outside.clear()
        return cls

    def _read_with(self, plan_for: PlanFor) -> None:
        self._reader = Reader(plan_for, trusted=True)
        self.read = self._reader.decode

    def encode(self, value: Any, where: str) -> bytes:
        """Raises SerializationError naming `where` and the path in the value; PayloadTooLarge."""
        kind = type_of(value)
        try:
            native = kind in SCALARS
            if kind is dict:  # the usual value: looked at here and without a call, which is faster
                native = True
                for key, item in value.items():
                    if type_of(key) is not str or type_of(item) not in SCALARS:
                        native = False
                        break
            if native:
                try:
                    data = encode_native(value)
                except (OverflowError, UnicodeEncodeError):
                    data = write(value, self.max_size)
            else:
                data = write(value, self.max_size)
        except Exception as error:
            raise self._refusal(error, value, where) from error
        if len(data) > self.max_size:
            raise PayloadTooLarge(where, type_name(kind), len(data), self.max_size)
        return data

    def digest(self, value: object) -> bytes:
        """12 bytes: the same for values of the same parts, in any order of dicts and sets."""
        try:
            data = write_canonical(value, self.max_size)
        except Exception as error:
            raise self._refusal(error, value, "digest of a value") from error
        return blake2b(data, digest_size=_DIGEST_SIZE).digest()

    def _refusal(self, error: Exception, value: object, where: str) -> SerializationError:
        if isinstance(error, Refused):
            return SerializationError(where, error.path, error.type_name, error.reason)
        if isinstance(error, TooMany):
            return PayloadTooLarge(where, type_name(type(value)), None, self.max_size)
        reason = f"reading it raised {type(error).__name__}: {error}; pass plain data"
        return SerializationError(where, "", type_name(type(value)), reason)

    def decode(
        self, data: bytes, annotation: object = Any, *, trusted: bool = True, where: str = ""
    ) -> Any:
        """Raises DecodingError when this code cannot build the value.

        The annotation finds classes that moved or were renamed. With `trusted=False` nothing is
        imported: only classes that it reaches, their subclasses, or registered ones are built, and
        models are validated.
        """
        try:
            if not trusted:
                return self._outside_reader(annotation).decode(data)
            try:
                return self._reader.decode(data)
            except MissingClass:
                if annotation is Any:
                    raise
                plan_for = _Moved(annotation, self._reader.plan_for, top_ref(data))
                return Reader(plan_for, trusted=True).decode(data)
        except Exception as error:
            raise _decoding_error(error, where) from error

    def _outside_reader(self, annotation: object) -> Reader:
        try:
            reader = self._outside.get(annotation)
        except TypeError:  # Annotated[..., unhashable]
            return Reader(_Allowed(annotation, self._registered), trusted=False)
        if reader is None:
            reader = Reader(_Allowed(annotation, self._registered), trusted=False)
            if len(self._outside) < _MAX_READERS:
                self._outside[annotation] = reader
        return reader

    def _registered_or_imported(self, ref: str) -> Plan:
        cls = self._registered.get(plain_ref(ref))
        return import_plan(ref) if cls is None else plan_or_unreadable(cls, ref)

    def encode_error(self, error: BaseException, where: str) -> bytes:
        """Never fails: what cannot be stored is left out, and StepFailed comes back."""
        return store_error(error, where, self.max_size)

    def decode_error(self, data: bytes) -> BaseException:
        """A fresh exception each time; StepFailed where its class or content is not to be had."""
        try:
            return raise_error(read_error(data), self._reader)
        except Exception as error:
            raise _decoding_error(error, "stored exception") from error

    def error_info(self, data: bytes) -> ErrorInfo:
        """The stored exception for display; imports nothing."""
        try:
            return describe_stored(read_error(data))
        except Exception as error:
            raise _decoding_error(error, "stored exception") from error

    def convert(self, value: object, annotation: object, where: str) -> Any:
        """Validate JSON-like data to the annotation. Raises SerializationError naming the path."""
        return _convert.convert(value, annotation, where)

    def to_json(self, data: bytes) -> object:
        """Any stored value or exception as JSON-able data; never fails, imports nothing."""
        return _display.show(data)


def _decoding_error(error: Exception, where: str) -> DecodingError:
    if isinstance(error, Unreadable):
        return DecodingError(where, error.ref, error.reason)
    return DecodingError(where, "", f"the data is damaged ({type(error).__name__}: {error})")


class _Allowed:
    """Finds only classes that an annotation reaches or that were registered."""

    def __init__(self, annotation: object, registered: dict[str, type]) -> None:
        self._known = {**reachable(annotation), **registered}

    def __call__(self, ref: str) -> Plan:
        cls = self._known.get(plain_ref(ref)) or find_subclass(ref, self._known.values())
        if cls is None:
            raise MissingClass(
                "data from a client may name only classes that the annotation reaches: annotate "
                "the parameter, or give the wait the type of its signal",
                ref,
            )
        return plan_or_unreadable(cls, ref)


class _Moved:
    """Finds as ever, and else among what the annotation reaches: a moved class by its bare name.

    A renamed class is found only where it is the value itself: `top` is the reference of that.
    """

    def __init__(self, annotation: object, plan_for: PlanFor, top: str) -> None:
        self._annotation = annotation
        self._plan_for = plan_for
        self._top = top

    def __call__(self, ref: str) -> Plan:
        try:
            return self._plan_for(ref)
        except MissingClass:
            cls = self._moved(ref) or self._renamed(ref)
            if cls is None:
                raise
        return plan_or_unreadable(cls, ref)

    def _moved(self, ref: str) -> type | None:
        name = short_name(ref)
        classes = reachable(self._annotation).values()
        return next((cls for cls in classes if cls.__qualname__ == name), None)

    def _renamed(self, ref: str) -> type | None:
        cls = sole_class(self._annotation) if ref == self._top else None
        return cls if cls is not None and is_data_class(cls) else None
