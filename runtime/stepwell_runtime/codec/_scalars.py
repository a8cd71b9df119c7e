"""Numbers, bytes, identifiers and paths of the standard library."""

from __future__ import annotations

import decimal
import fractions
import pathlib
import struct
import uuid
from typing import Any, Final

import msgspec

from stepwell_runtime.codec import _tags as tags
from stepwell_runtime.codec._read import Reader, raisers
from stepwell_runtime.codec._refs import type_name
from stepwell_runtime.codec._write import Ext, Writer, handlers
from stepwell_runtime.codec.errors import Refused

_PATHS: Final[dict[str, type[pathlib.PurePath]]] = {
    kind.__name__: kind
    for kind in (
        pathlib.PurePosixPath,
        pathlib.PureWindowsPath,
        pathlib.PosixPath,
        pathlib.WindowsPath,
    )
}
_SINGLETONS: Final[dict[str, object]] = {"...": ..., "msgspec.UNSET": msgspec.UNSET}


def _lower_bytearray(writer: Writer, value: bytearray, depth: int) -> object:
    return Ext(tags.BYTEARRAY, bytes(value))


def _lower_complex(writer: Writer, value: complex, depth: int) -> object:
    return Ext(tags.COMPLEX, struct.pack("<dd", value.real, value.imag))


def _lower_decimal(writer: Writer, value: decimal.Decimal, depth: int) -> object:
    return Ext(tags.DECIMAL, str(value).encode())


def _lower_fraction(writer: Writer, value: fractions.Fraction, depth: int) -> object:
    parts = [writer.lower(value.numerator, depth), writer.lower(value.denominator, depth)]
    return writer.ext(tags.FRACTION, parts)


def _lower_uuid(writer: Writer, value: uuid.UUID, depth: int) -> object:
    return Ext(tags.UUID, value.bytes)


def _lower_range(writer: Writer, value: range, depth: int) -> object:
    ends = (value.start, value.stop, value.step)
    return writer.ext(tags.RANGE, [writer.lower(end, depth) for end in ends])


def _lower_path(writer: Writer, value: pathlib.PurePath, depth: int) -> object:
    return writer.ext(tags.PATH, [type(value).__name__, writer.lower(str(value), depth)])


def _lower_singleton(writer: Writer, value: object, depth: int) -> object:
    for name, singleton in _SINGLETONS.items():
        if singleton is value:
            return Ext(tags.SINGLETON, name.encode())
    raise Refused(type_name(type(value)), "this value cannot be stored")


def _raise_path(reader: Reader, data: memoryview) -> Any:
    kind, text = reader.decode(data)
    return _PATHS[kind](text)


handlers.update(
    {
        bytearray: _lower_bytearray,
        complex: _lower_complex,
        decimal.Decimal: _lower_decimal,
        fractions.Fraction: _lower_fraction,
        uuid.UUID: _lower_uuid,
        range: _lower_range,
        type(...): _lower_singleton,
        type(msgspec.UNSET): _lower_singleton,
        **dict.fromkeys(_PATHS.values(), _lower_path),
    }
)

raisers.update(
    {
        tags.BYTEARRAY: lambda reader, data: bytearray(data),
        tags.COMPLEX: lambda reader, data: complex(*struct.unpack("<dd", data)),
        tags.DECIMAL: lambda reader, data: decimal.Decimal(str(data, "ascii")),
        tags.FRACTION: lambda reader, data: fractions.Fraction(*reader.decode(data)),
        tags.UUID: lambda reader, data: uuid.UUID(bytes=bytes(data)),
        tags.RANGE: lambda reader, data: range(*reader.decode(data)),
        tags.PATH: _raise_path,
        tags.SINGLETON: lambda reader, data: _SINGLETONS[str(data, "ascii")],
    }
)
