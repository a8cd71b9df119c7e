"""Codes of the msgpack extension types. Never reuse or renumber one: data is stored."""

from __future__ import annotations

from typing import Final

TUPLE: Final = 1
MAP: Final = 2
SET: Final = 3
FROZENSET: Final = 4
BIGINT: Final = 5
BYTEARRAY: Final = 6
STR: Final = 7
COMPLEX: Final = 8
DECIMAL: Final = 9
FRACTION: Final = 10
UUID: Final = 11
DATETIME: Final = 12
DATE: Final = 13
TIME: Final = 14
TIMEDELTA: Final = 15
TZINFO: Final = 16
PATH: Final = 17
DEQUE: Final = 18
RANGE: Final = 19
COUNTER: Final = 20
DEFAULTDICT: Final = 21
ORDEREDDICT: Final = 22
OBJECT: Final = 23
ENUM: Final = 24
SINGLETON: Final = 25
TEXT: Final = 26
ERROR: Final = 27
