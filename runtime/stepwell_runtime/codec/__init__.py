"""Values and exceptions to bytes and back."""

from __future__ import annotations

from stepwell_runtime.codec import (
    _containers,
    _enums,
    _models,
    _objects,
    _scalars,
    _texts,
    _times,
)
from stepwell_runtime.codec._codec import Codec
from stepwell_runtime.codec._exceptions import ErrorInfo
from stepwell_runtime.codec.errors import DecodingError, PayloadTooLarge, SerializationError

__all__ = ["Codec", "DecodingError", "ErrorInfo", "PayloadTooLarge", "SerializationError"]

# Imported for what they register: each knows how its kinds of values are lowered and raised.
del _containers, _enums, _models, _objects, _scalars, _texts, _times
