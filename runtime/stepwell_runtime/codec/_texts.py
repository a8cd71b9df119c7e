"""Types whose whole content is their text: IP addresses, and the URLs of pydantic."""

from __future__ import annotations

import importlib
from typing import Any, Final

from stepwell_runtime.codec import _tags as tags
from stepwell_runtime.codec._read import Reader, raisers
from stepwell_runtime.codec._refs import type_name
from stepwell_runtime.codec._write import Handler, Writer, finders
from stepwell_runtime.codec.errors import Refused, Unreadable

_ADDRESSES: Final = frozenset(
    f"IPv{version}{kind}" for version in (4, 6) for kind in ("Address", "Interface", "Network")
)
_URLS: Final = ("Url", "Dsn")


def _is_text(module: str, name: str) -> bool:
    if module == "ipaddress":
        return name in _ADDRESSES
    return module == "pydantic.networks" and name.endswith(_URLS)


def _find(kind: type) -> Handler | None:
    module, name = kind.__module__, kind.__qualname__
    if not _is_text(module, name):
        return None

    def lower(writer: Writer, value: Any, depth: int) -> object:
        text = str(value)
        if kind(text) != value:
            raise Refused(type_name(kind), "its text does not stand for it: pass str(value)")
        return writer.ext(tags.TEXT, [module, name, text])

    return lower


def _raise_text(reader: Reader, data: memoryview) -> Any:
    module, name, text = reader.decode(data)
    if not _is_text(module, name):
        raise Unreadable(f"unknown kind of text: {module}.{name}")
    return getattr(importlib.import_module(module), name)(text)


finders.append(_find)
raisers[tags.TEXT] = _raise_text
