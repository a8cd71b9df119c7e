"""Who else has the file open: a locked file and a socket per process, in a short runtime folder.

The kernel drops the lock when its process dies, whatever it died of: a lock that can be taken
is a death certificate.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

from stepwell_queue.errors import StoreRefused

_FALLBACK: Final = Path("/tmp")
_SERVER: Final = "server"
_LONGEST_BASE: Final = 104 - 64  # what is added: /stepwell-UID/, two names of 16 digits, .sock


def folder_of(database: Path) -> Path:
    """The runtime folder of a database file; socket paths end at about 104 bytes."""
    status = database.stat()
    name = hashlib.sha256(f"{status.st_dev}:{status.st_ino}".encode()).hexdigest()[:16]
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or _FALLBACK)
    if len(os.fsencode(base)) > _LONGEST_BASE:
        base = _FALLBACK
    mine = base / f"stepwell-{os.getuid()}"
    try:
        mine.mkdir(mode=0o700, exist_ok=True)
        found = mine.lstat()
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise StoreRefused(
                f"{mine} must be a folder of this user alone (mode 0700): remove it, "
                "or set XDG_RUNTIME_DIR to a private folder"
            )
        folder = mine / name
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreRefused(
            f"the runtime folder {mine} cannot be used ({error}): "
            "set XDG_RUNTIME_DIR to a private, writable folder"
        ) from error
    return folder


class Presence:
    """This process's lock; `token` is the path of lock and socket, without their suffixes."""

    def __init__(self, folder: Path, nonce: int) -> None:
        self.folder = folder
        self.token = str(folder / f"{nonce:016x}")
        self._fd = self._server_fd = -1

    @property
    def socket_path(self) -> str:
        return f"{self.token}.sock"

    def register(self) -> None:
        """Hold the lock from the first moment that others can see the file."""
        fd, temporary = self._new_file()
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, str(os.getpid()).encode())
        Path(temporary).rename(f"{self.token}.lock")
        self._fd = fd
        with contextlib.suppress(FileNotFoundError):  # left by a dead process of the same name
            Path(self.socket_path).unlink()

    def _new_file(self) -> tuple[int, str]:
        while True:
            try:
                return tempfile.mkstemp(dir=self.folder, prefix="new-")
            except FileNotFoundError:  # the last process that was here has just left
                self.folder.mkdir(mode=0o700, exist_ok=True)

    def serve(self) -> None:
        """Take the lock of the one process that serves this file to others. Raises StoreRefused."""
        path = self.folder / _SERVER
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                pid = os.read(fd, 20).decode("ascii", "replace").partition("\n")[0]
                os.close(fd)
                raise StoreRefused(
                    f"process {pid or '(starting)'} serves this file already: "
                    "stop it first, or give this server another file"
                ) from error
            if _is_file(fd, path):
                break
            os.close(fd)  # its process left and removed it meanwhile
        line = f"{os.getpid()}\n".encode()
        os.pwrite(fd, line, 0)
        os.ftruncate(fd, len(line))
        self._server_fd = fd

    def serve_no_more(self) -> None:
        if self._server_fd >= 0:
            with contextlib.suppress(OSError):
                (self.folder / _SERVER).unlink()  # while it is locked, so that it is this one
            os.close(self._server_fd)
            self._server_fd = -1

    def unregister(self) -> None:
        self.serve_no_more()
        for path in (self.socket_path, f"{self.token}.lock"):
            with contextlib.suppress(OSError):
                Path(path).unlink()
        self._tidy()
        with contextlib.suppress(OSError):  # others are still here
            self.folder.rmdir()
        self.let_go()

    def _tidy(self) -> None:
        """The last to leave removes what a killed server has left."""
        with contextlib.suppress(OSError):
            if [path.name for path in self.folder.iterdir()] == [_SERVER]:
                (self.folder / _SERVER).unlink()

    def let_go(self) -> None:
        """Close the descriptor alone: in a forked child the lock stays with the parent."""
        for fd in (self._fd, self._server_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._server_fd = -1

    def others(self) -> tuple[set[str], set[str]]:
        """The tokens of this folder that live, and the dead, whose files are removed."""
        living: set[str] = set()
        dead: set[str] = set()
        for path in self.folder.glob("*.lock"):
            token = str(path.with_suffix(""))
            if token == self.token:
                continue
            if is_held(token) is False:
                dead.add(token)
                _remove(token)
            else:
                living.add(token)
        return living, dead


def _is_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _remove(token: str) -> None:
    for suffix in (".sock", ".lock"):
        with contextlib.suppress(OSError):
            Path(token + suffix).unlink()


def is_held(token: str) -> bool | None:
    """Whether the process of this token lives; None = no telling (other user or container)."""
    try:
        fd = os.open(f"{token}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # shared, so that two who look at once do not take each other for the owner
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def pid_of(token: str) -> int | None:
    try:
        return int(Path(f"{token}.lock").read_text("ascii"))
    except (OSError, ValueError):
        return None
