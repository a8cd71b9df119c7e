"""Processes that fork while they are connected to a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving import serving_in_a_thread

QUIET = ("-W", "ignore:This process:DeprecationWarning")  # to fork beside threads is the point

FORKER = """
import asyncio, os, sys, threading
from pathlib import Path
from stepwell_queue import StoreUnavailable
from tests.tcp.kit import client_of

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()

def wait(work):
    return asyncio.run_coroutine_threadsafe(work, loop).result(20)

async def refused(client, session):
    for use in (client.start(), client.claim(session), client.store.info("run-1"),
                client.store.wait_ended("run-1"), client.session()):
        try:
            await use
        except StoreUnavailable as error:
            assert "fork" in str(error), error
        else:
            raise AssertionError("the child could use the store")
    await client.store.close()
    other = await client_of(sys.argv[1], Path("runs.db"))
    assert (await other.start(f"of the child {os.getpid()}")).created
    await other.store.close()

client = wait(client_of(sys.argv[1], Path("runs.db")))
session = wait(client.session(queues=["parent"]))
for round in range(int(sys.argv[2])):
    wait(client.claimed(session, queue="parent"))
    child = os.fork()
    if child == 0:
        asyncio.run(refused(client, session))
        sys.exit()  # as any program ends: the interpreter is taken down
    wait(client.start())
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    wait(client.claimed(session, f"after-{round}", queue="parent"))
assert wait(client.store.doctor()) == []
assert len(wait(client.store.workers())) == 1
wait(client.store.close())
"""


@pytest.mark.blocking
def test_a_forked_child_is_refused_and_its_parent_stays_connected(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    code = f"import sys; sys.path.insert(0, {str(root)!r})\n{FORKER}"
    with serving_in_a_thread(tmp_path / "runs.db") as url:
        command = [sys.executable, "-I", *QUIET, "-c", code, url, "5"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")


BLOCKING = """
import os, sys
from stepwell import BlockingStepwell, step, workflow

@step
def add(a: int, b: int) -> int:
    return a + b

@workflow
async def total(a: int, b: int) -> int:
    return await add(a, b)

app = BlockingStepwell(sys.argv[1])
first = app.start(total(1, 2), id="first")
assert app.run(total(1, 2), id="first") == 3
child = os.fork()
if child == 0:
    assert (first.result(), app.run(total(3, 4), id="second")) == (3, 7)
    app.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert (app.get("second", total).result(), app.run(total(5, 6), id="third")) == (7, 11)
assert app.doctor() == []
app.close()
"""


@pytest.mark.blocking
def test_the_blocking_app_opens_a_connection_of_its_own_in_a_forked_child(tmp_path: Path) -> None:
    with serving_in_a_thread(tmp_path / "runs.db") as url:
        command = [sys.executable, "-I", "-W", "error", *QUIET, "-c", BLOCKING, url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
