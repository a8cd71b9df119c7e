"""The runtime folder of a store comes with its first process and goes with its last."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from stepwell_queue.sqlite.presence import Presence, folder_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp/stepwell-test")
    Path("/tmp/stepwell-test").mkdir(exist_ok=True)
    database = tmp_path / "runs.db"
    database.touch()
    return folder_of(database)


def test_the_last_to_leave_removes_the_folder(folder: Path) -> None:
    first, second = Presence(folder, 1), Presence(folder, 2)
    first.register()
    second.register()
    first.unregister()
    assert first.others() == ({second.token}, set())
    second.unregister()
    assert not folder.exists()


def test_who_comes_while_the_last_one_leaves_finds_a_folder(folder: Path) -> None:
    leaving, coming = Presence(folder, 1), Presence(folder, 2)
    leaving.register()
    leaving.unregister()
    coming.register()
    assert [path.name for path in folder.iterdir()] == [Path(f"{coming.token}.lock").name]
    coming.unregister()


def test_a_socket_that_a_dead_process_left_under_the_same_name_is_removed(folder: Path) -> None:
    coming = Presence(folder, 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(coming.socket_path)
    coming.register()
    assert not Path(coming.socket_path).exists()
    coming.unregister()
