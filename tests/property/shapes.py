"""Workflows whose shape is their argument, and strategies that make up shapes.

A shape is a tree of plain dicts. Every branch notes what it does in one list that all branches of a
run share, so the result of a run shows in which order its code went on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from hypothesis import strategies as st

from stepwell import (
    Call,
    Cancelled,
    DeadlineExceeded,
    Retry,
    compensate,
    current_step,
    deadline,
    parallel,
    patched,
    race,
    random,
    rollback_scope,
    sleep,
    start,
    step,
    task,
    uuid4,
    wait_for_signal,
    workflow,
)
from tests.property.clock import VirtualClock

Node = dict[str, Any]
Trace = list[str]
Execution = tuple[str, str, int]  # run id, path, attempt

NEVER = 1_000_000
FLAKY = Retry(attempts=NEVER, delay=1.0, factor=2.0, max_delay=3.0, jitter=False)

clock_of_worker: ContextVar[VirtualClock] = ContextVar("clock_of_worker")
executions: ContextVar[list[Execution]] = ContextVar("executions")


class Broken(Exception):
    """What a step that is meant to fail raises."""


def executed() -> None:
    scope = current_step()
    executions.get().append((scope.run_id, scope.path, scope.attempt))


@step
async def note(label: str) -> str:
    executed()
    return label


@step
def plain(label: str) -> str:
    executed()
    return label


@step(retry=FLAKY)
async def flaky(label: str, failures: int) -> str:
    executed()
    if current_step().attempt <= failures:
        raise Broken(label)
    return label


@step
async def broken(label: str) -> str:
    executed()
    raise Broken(label)


@step
async def mended(label: str, at: float) -> str:
    """Fails until somebody has mended what it needs."""
    executed()
    if clock_of_worker.get().now() < at:
        raise Broken(label)
    return label


async def pause(seconds: float) -> None:
    over = asyncio.Event()
    clock = clock_of_worker.get()
    timer = clock.call_at(clock.now() + seconds, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()


@step
async def slow(label: str, seconds: float) -> str:
    executed()
    await pause(seconds)
    return label


@step(on_cancel="interrupt")
async def interruptible(label: str, seconds: float) -> str:
    executed()
    await pause(seconds)
    return label


@step(queue="elsewhere")
async def remote(label: str) -> str:
    executed()
    return label


@task(max_crashes=NEVER)
async def job(label: str) -> str:
    executed()
    return label


@step(retry=Retry(attempts=2, delay=1.0, jitter=False))
async def revert(label: str, at: float) -> None:
    """An undo that fails until then."""
    executed()
    if clock_of_worker.get().now() < at:
        raise Broken(f"undo of {label}")


def unbook(label: str) -> Call[None]:
    return revert(label, 0.0)


@step(compensate=unbook)
async def book(label: str) -> str:
    executed()
    return label


@workflow(max_crashes=NEVER)
async def shaped(node: Node) -> list[Any]:
    trace: Trace = []
    return [await perform(node, trace), trace]


@workflow(max_crashes=NEVER, on_failure="hold")
async def held(node: Node) -> list[Any]:
    trace: Trace = []
    return [await perform(node, trace), trace]


async def perform(node: Node, trace: Trace) -> Any:
    value = await PERFORMERS[node["kind"]](node, trace)
    trace.append(f"{node['kind']} {node.get('label', '')}")
    return value


async def _seq(node: Node, trace: Trace) -> Any:
    return [await perform(one, trace) for one in node["nodes"]]


async def _parallel(node: Node, trace: Trace) -> Any:
    branches = [perform(one, trace) for one in node["nodes"]]
    found = await parallel(
        *branches, limit=node["limit"], return_exceptions=node["return_exceptions"]
    )
    return [str(one) if isinstance(one, Exception) else one for one in found]


async def _race(node: Node, trace: Trace) -> Any:
    index, value = await race(*[perform(one, trace) for one in node["nodes"]])
    return [index, value]


async def _sleep(node: Node, trace: Trace) -> None:
    await sleep(node["seconds"])


async def _wait(node: Node, trace: Trace) -> Any:
    if node["timeout"] is None:
        return await wait_for_signal(node["signal"])
    return await wait_for_signal(node["signal"], timeout=node["timeout"], default="late")


async def _guarded(node: Node, trace: Trace) -> Any:
    try:
        return await perform(node["node"], trace)
    except Exception as error:  # noqa: BLE001  what any step may raise
        trace.append(f"caught {type(error).__name__} {error}")
        return await perform(node["handler"], trace)


async def _finally(node: Node, trace: Trace) -> Any:
    try:
        return await perform(node["node"], trace)
    finally:
        trace.append("finally")
        await perform(node["handler"], trace)


async def _stubborn(node: Node, trace: Trace) -> Any:
    try:
        return await perform(node["node"], trace)
    except Cancelled:
        trace.append("swallowed")
        return None


async def _fork(node: Node, trace: Trace) -> Any:
    """Which way it goes depends on what the other branches have done so far."""
    return await perform(node["nodes"][len(trace) % 2], trace)


async def _undo(node: Node, trace: Trace) -> None:
    undo = compensate(revert(node["label"], node["at"]))
    if node["discarded"]:
        undo.discard()


async def _scoped(node: Node, trace: Trace) -> Any:
    try:
        async with rollback_scope():
            return await perform(node["node"], trace)
    except Exception as error:  # noqa: BLE001  what any step may raise
        trace.append(f"undone {type(error).__name__} {error}")
        return await perform(node["handler"], trace)


async def _timed(node: Node, trace: Trace) -> Any:
    try:
        async with deadline(node["seconds"]):
            return await perform(node["node"], trace)
    except DeadlineExceeded:
        trace.append("too late")
        return await perform(node["handler"], trace)


async def _patched(node: Node, trace: Trace) -> Any:
    new = patched(node["id"])
    return await perform(node["nodes"][0 if new else 1], trace)


async def _chance(node: Node, trace: Trace) -> Any:
    return [random().random(), str(uuid4())]


async def _child(node: Node, trace: Trace) -> Any:
    return await shaped(node["node"])


async def _left_child(node: Node, trace: Trace) -> Any:
    return await shaped(node["node"]).with_options(on_parent_cancel="leave")


async def _held_child(node: Node, trace: Trace) -> Any:
    return await held(node["node"])


async def _detached(node: Node, trace: Trace) -> Any:
    child = await start(shaped(node["node"]), on_parent_cancel=node.get("on_parent_cancel"))
    between = await perform(node["between"], trace)
    return [between, await child.result() if node["joined"] else None]


def _step(make: Callable[[Node], Call[Any]]) -> Callable[[Node, Trace], Awaitable[Any]]:
    async def run(node: Node, trace: Trace) -> Any:
        return await make(node)

    return run


PERFORMERS: dict[str, Callable[[Node, Trace], Awaitable[Any]]] = {
    "seq": _seq,
    "parallel": _parallel,
    "race": _race,
    "sleep": _sleep,
    "wait": _wait,
    "guarded": _guarded,
    "finally": _finally,
    "stubborn": _stubborn,
    "fork": _fork,
    "undo": _undo,
    "patched": _patched,
    "scoped": _scoped,
    "timed": _timed,
    "chance": _chance,
    "child": _child,
    "left child": _left_child,
    "held child": _held_child,
    "detached": _detached,
    "note": _step(lambda node: note(node["label"])),
    "plain": _step(lambda node: plain(node["label"])),
    "flaky": _step(lambda node: flaky(node["label"], node["failures"])),
    "broken": _step(lambda node: broken(node["label"])),
    "mended": _step(lambda node: mended(node["label"], node["at"])),
    "slow": _step(lambda node: slow(node["label"], node["seconds"])),
    "interruptible": _step(lambda node: interruptible(node["label"], node["seconds"])),
    "remote": _step(lambda node: remote(node["label"])),
    "job": _step(lambda node: job(node["label"])),
    "book": _step(lambda node: book(node["label"])),
}

# Timers end on whole numbers; what comes from outside comes in between.
SECONDS = st.integers(1, 4).map(float)
LABELS = st.sampled_from("abcdefgh")
SIGNALS = ("red", "green")
PATCHES = ("first", "second")


START = 1_000_000.0
MENDED_FROM = st.sampled_from([START + 15.0, START + 45.0])
UNDO_FROM = st.sampled_from([0.0, 0.0, START + 65.0, 2 * START])


def of_kind(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Node]:
    return st.fixed_dictionaries({"kind": st.just(kind), **fields})


def _leaves(*, endless: bool) -> list[st.SearchStrategy[Node]]:
    timeout: st.SearchStrategy[float | None] = SECONDS
    if endless:
        timeout = st.one_of(SECONDS, st.none())
    return [
        of_kind("note", label=LABELS),
        of_kind("note", label=LABELS),
        of_kind("flaky", label=LABELS, failures=st.integers(1, 2)),
        of_kind("broken", label=LABELS),
        of_kind("sleep", seconds=SECONDS),
        of_kind("wait", signal=st.sampled_from(SIGNALS), timeout=timeout),
        of_kind("undo", label=LABELS, at=UNDO_FROM, discarded=st.booleans()),
        of_kind("book", label=LABELS),
        of_kind("chance"),
    ]


# A cancel does not reach what is asked for while it is handled.
_TIDY = st.one_of(
    of_kind("note", label=LABELS),
    of_kind("flaky", label=LABELS, failures=st.just(1)),
    of_kind("broken", label=LABELS),
    of_kind("sleep", seconds=SECONDS),
    of_kind("wait", signal=st.sampled_from(SIGNALS), timeout=SECONDS),
)

# What runs beside it in the cleanup is cancelled when it ends (race), or when it fails (parallel).
_CLEANUP = st.one_of(
    _TIDY,
    of_kind(
        "race",
        nodes=st.tuples(
            _TIDY,
            st.one_of(_TIDY, of_kind("wait", signal=st.sampled_from(SIGNALS), timeout=st.none())),
        ).map(list),
    ),
    of_kind(
        "parallel",
        nodes=st.lists(_TIDY, min_size=2, max_size=3),
        limit=st.one_of(st.none(), st.integers(1, 2)),
        return_exceptions=st.booleans(),
    ),
)


def _inner(nodes: st.SearchStrategy[Node]) -> list[st.SearchStrategy[Node]]:
    several = st.lists(nodes, min_size=2, max_size=4)
    return [
        of_kind("seq", nodes=several),
        of_kind("seq", nodes=several),
        of_kind(
            "parallel",
            nodes=several,
            limit=st.one_of(st.none(), st.integers(1, 3)),
            return_exceptions=st.booleans(),
        ),
        of_kind("race", nodes=several),
        of_kind("guarded", node=nodes, handler=nodes),
        of_kind("finally", node=nodes, handler=_CLEANUP),
        of_kind("scoped", node=nodes, handler=nodes),
        of_kind("timed", seconds=st.integers(0, 3).map(float), node=nodes, handler=nodes),
        of_kind("stubborn", node=nodes),
        of_kind("fork", nodes=st.lists(nodes, min_size=2, max_size=2)),
    ]


def _slow_leaves() -> list[st.SearchStrategy[Node]]:
    return [
        of_kind("slow", label=LABELS, seconds=SECONDS),
        of_kind("interruptible", label=LABELS, seconds=SECONDS),
        of_kind("plain", label=LABELS),
        of_kind("remote", label=LABELS),
        of_kind("job", label=LABELS),
    ]


def mended_shapes() -> st.SearchStrategy[Node]:
    """Shapes in which steps and undos fail until they are mended, and children wait for that."""
    mends = of_kind("mended", label=LABELS, at=MENDED_FROM)
    child = of_kind("held child", node=_tree(endless=True))
    leaves = st.one_of([*_leaves(endless=True), *_slow_leaves(), mends, mends, mends, child])
    return st.recursive(leaves, lambda nodes: st.one_of(_inner(nodes)), max_leaves=8)


def local_shapes() -> st.SearchStrategy[Node]:
    """Shapes of one run whose steps take no virtual time."""
    leaves = st.one_of(_leaves(endless=True))
    return st.recursive(leaves, lambda nodes: st.one_of(_inner(nodes)), max_leaves=14)


def _tree(*, endless: bool) -> st.SearchStrategy[Node]:
    leaves = st.one_of(_leaves(endless=endless) + _slow_leaves())
    return st.recursive(leaves, lambda nodes: st.one_of(_inner(nodes)), max_leaves=6)


def shapes() -> st.SearchStrategy[Node]:
    """Shapes with steps that take time, node jobs, tasks and children."""
    child = of_kind("child", node=_tree(endless=True))
    # Nobody cancels a detached child, so it must not wait without end.
    detached = of_kind(
        "detached",
        node=_tree(endless=False),
        between=_tree(endless=True),
        joined=st.booleans(),
        on_parent_cancel=st.sampled_from(["leave", "cancel"]),
    )
    left = of_kind("left child", node=_tree(endless=False))
    leaves = st.one_of([*_leaves(endless=True), *_slow_leaves(), child, child, left, detached])
    return st.recursive(
        leaves, lambda nodes: st.one_of([*_inner(nodes), _fork_at_patch(nodes)]), max_leaves=10
    )


def _fork_at_patch(nodes: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    """A run that was killed before its marker was durable goes another way than without that."""
    ways = st.lists(nodes, min_size=2, max_size=2)
    return of_kind("patched", id=st.sampled_from(PATCHES), nodes=ways)
