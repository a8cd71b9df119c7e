"""What holds for every test: no warning passes, and nothing blocks the event loop."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from blockbuster import BlockBuster

PACKAGES = ("stepwell", "stepwell_runtime", "stepwell_queue")

MAY_BLOCK = (
    # Under durability "process" a small batch is committed on the loop thread, which costs less
    # than the hop to another thread would. Also its connection is opened there, once.
    ("stepwell_queue/sqlite/writer.py", {"apply", "__init__"}),
    # Read from the memory of the kernel, once.
    ("stepwell_queue/sqlite/machine.py", {"boot_id"}),
    # A declaration names a time zone, which is read from disk, once; most stand in modules.
    ("stepwell_runtime/schedules/rules.py", {"zone_of"}),
    # Likewise, by the kernel itself.
    ("stepwell_runtime/recycling.py", {"resident_mib"}),
    # What is imported on first use is read from disk there and then.
    ("<frozen importlib._bootstrap>", {"_find_and_load"}),
    # Looks for its plugins when it is first used.
    ("pydantic/plugin/_loader.py", {"get_plugins"}),
    # A traceback on the console shows lines of the source.
    ("structlog/dev.py", {"__call__"}),
)


@dataclass(frozen=True)
class Scale:
    """How much a test does: little on every change, much in `make soak`."""

    soak: bool

    def __call__(self, small: int, large: int) -> int:
        return large if self.soak else small


def _soak() -> bool:
    return os.environ.get("STEPWELL_SOAK", "") not in ("", "0")


@pytest.fixture(scope="session")
def scale() -> Scale:
    return Scale(_soak())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _soak():
        return
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.skip(reason="long form only: make soak"))


@pytest.fixture(scope="session")
def _blockbuster() -> BlockBuster:
    detector = BlockBuster(PACKAGES)
    del detector.functions["os.getcwd"]  # asks the kernel, not a disk
    for function in detector.functions.values():
        for filename, names in MAY_BLOCK:
            function.can_block_in(filename, names)
    return detector


@pytest.fixture(autouse=True)
def _nothing_blocks_the_loop(
    request: pytest.FixtureRequest, _blockbuster: BlockBuster
) -> Iterator[None]:
    if request.node.get_closest_marker("blocking"):
        yield
        return
    _blockbuster.activate()
    try:
        yield
    finally:
        _blockbuster.deactivate()
