"""What a power cut leaves of the files whose writes and syncs were recorded.

Everything synced is kept. Of what was not, every sector is kept, dropped or garbled by chance, and
so is every change of a file's size. A sector is damaged only where it was written: SQLite assumes
that of a disk (`SQLITE_POWERSAFE_OVERWRITE`). Names follow in order: a file's name is on disk when
the file or its folder was synced, as on any journaling file system.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

SECTOR = 512
_HEADER = struct.Struct("<B3xIQQQ")

Op = Literal["W", "T", "S", "D", "U", "M", "R"]


@dataclass(frozen=True)
class Event:
    """One recorded act: write, truncate, sync, sync of a folder, unlink, move, report."""

    op: Op
    path: str
    offset: int = 0
    data: bytes = b""
    inode: int = 0


def read_record(path: Path) -> list[Event]:
    return list(_events(path.read_bytes()))


def _events(raw: bytes) -> Iterator[Event]:
    at = 0
    while at + _HEADER.size <= len(raw):
        code, path_size, offset, size, inode = _HEADER.unpack_from(raw, at)
        op: Op = _OPS[code]
        begin = at + _HEADER.size + path_size
        at = begin + (size if op in "WMR" else 0)
        yield Event(op, raw[begin - path_size : begin].decode(), offset, raw[begin:at], inode)


_OPS: dict[int, Op] = {ord(op): op for op in ("W", "T", "S", "D", "U", "M", "R")}


_Change: TypeAlias = tuple[int, bytes | None]
"""Bytes written at an offset, or None: the size that the file was cut or grown to."""


@dataclass
class _File:
    inode: int
    synced: bytearray = field(default_factory=bytearray)
    pending: list[_Change] = field(default_factory=list[_Change])

    def sync(self) -> None:
        for offset, data in self.pending:
            _put(self.synced, offset, data)
        self.pending.clear()


def _put(content: bytearray, offset: int, data: bytes | None) -> None:
    end = offset if data is None else offset + len(data)
    if data is None:
        del content[offset:]
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if data is not None:
        content[offset:end] = data


@dataclass(frozen=True)
class _Luck:
    """How kind the cut is to a sector that was not synced."""

    keep: float
    garble: float

    @classmethod
    def draw(cls, rng: Random) -> _Luck:
        return cls(keep=rng.choice((0.0, 0.5, 0.9, 1.0)), garble=rng.choice((0.0, 0.0, 0.2)))


class Disk:
    """Follows a record; says at any moment what would be left."""

    def __init__(self) -> None:
        self._names: dict[str, _File] = {}
        self._synced_names: dict[str, _File] = {}
        self._pending_names: list[dict[str, _File]] = []  # the names after each change

    def follow(self, event: Event) -> None:
        match event.op:
            case "W":
                self._file(event).pending.append((event.offset, event.data))
            case "T":
                self._file(event).pending.append((event.offset, None))
            case "S":
                self._sync(self._file(event))
            case "D":
                self._sync_names(len(self._pending_names))
            case "U":
                self._rename(event.path, None)
            case "M":
                self._rename(event.path, event.data.decode())
            case "R":
                pass

    def _file(self, event: Event) -> _File:
        known = self._names.get(event.path)
        if known is not None and known.inode == event.inode:
            return known
        created = _File(event.inode)
        self._change_names({**self._names, event.path: created})
        return created

    def _sync(self, file: _File) -> None:
        file.sync()
        for count, names in enumerate(self._pending_names, 1):
            if any(named is file for named in names.values()):
                self._sync_names(count)
                return

    def _rename(self, path: str, to: str | None) -> None:
        names = dict(self._names)
        file = names.pop(path, None)
        if file is not None:
            if to is not None:
                names[to] = file
            self._change_names(names)

    def _change_names(self, names: dict[str, _File]) -> None:
        self._names = names
        self._pending_names.append(names)

    def _sync_names(self, count: int) -> None:
        if count:
            self._synced_names = self._pending_names[count - 1]
            del self._pending_names[:count]

    def cut_power(self, rng: Random) -> dict[str, bytes]:
        """Return what is left, by path; the disk itself goes on."""
        luck = _Luck.draw(rng)
        possible = [self._synced_names, *self._pending_names]
        names = possible[-1] if luck.keep == 1.0 else rng.choice(possible)
        return {path: bytes(_survivors(file, luck, rng)) for path, file in names.items()}


def _survivors(file: _File, luck: _Luck, rng: Random) -> bytearray:
    content = bytearray(file.synced)
    for offset, data in file.pending:
        if data is None:
            if rng.random() < luck.keep:
                _put(content, offset, None)
            continue
        if rng.random() < luck.keep and len(content) < offset + len(data):
            _put(content, offset + len(data), None)  # the new size is kept, whatever is in it
        for start, piece in _sectors(offset, data):
            if rng.random() < luck.keep:
                _put(content, start, piece)
            elif rng.random() < luck.garble:
                _put(content, start, rng.randbytes(len(piece)))
    return content


def _sectors(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        size = min(SECTOR - (offset + at) % SECTOR, len(data) - at)
        yield offset + at, data[at : at + size]
        at += size
