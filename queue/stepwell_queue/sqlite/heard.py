"""The uids of the last changes of something: what is said again must undo nothing said since."""

from __future__ import annotations

import json
from typing import Final

REMEMBERED: Final = 32
"""How many of the last changes are known when they are said again."""


def uids_in(stored: str) -> list[str]:
    """Return the uids that are stored, oldest first."""
    uids: list[str] = json.loads(stored)
    return uids


def with_uid(uids: list[str], uid: str) -> str:
    """Return what is stored once one more was heard."""
    return json.dumps([*uids, uid][-REMEMBERED:])
