"""The flags of `bench queue`, and the measurements that they ask for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

import msgspec

from bench.spec import WORKLOADS, Spec

CONCURRENCY: Final = 128
PENDING: Final = (1_000, 100_000, 1_000_000)
_FOR: Final = {"keys": "keys", "key_limit": "keys", "rate": "rate", "pending": "pending"}


def add_queue_flags(command: argparse.ArgumentParser) -> None:
    """All but those which `bench workflow` has, too."""
    usual = Spec("keys", 0, 0, "full")
    command.add_argument("--workload", dest="name", choices=WORKLOADS, required=True)
    command.add_argument("--keys", type=whole, help=f"keys: how many there are ({usual.keys})")
    command.add_argument(
        "--key-limit", type=whole, help=f"keys: tasks of one at a time ({usual.key_limit})"
    )
    command.add_argument("--rate", type=whole, help=f"rate: starts per second ({usual.rate})")
    command.add_argument(
        "--pending",
        type=wholes,
        metavar="N,…",
        help=f"pending: tasks that wait beside those that are claimed ({text(PENDING)})",
    )


def complaint(flags: argparse.Namespace) -> str | None:
    """What is wrong with a flag of one workload, if anything is."""
    for name, workload in _FOR.items():
        if getattr(flags, name) is not None and flags.name != workload:
            return f"--{name.replace('_', '-')} is for --workload {workload}"
    if flags.workers and flags.name == "pending":
        return "--workers: nothing works while claims are measured"
    if flags.name == "pending":
        few = min(flags.pending or PENDING)
        if few < (flags.concurrency or 1):
            return f"--pending: {few} tasks cannot block a key of which --concurrency may run"
    return None


def specs_of(spec: Spec, flags: argparse.Namespace) -> Sequence[Spec]:
    """One for each row of the report."""
    chosen = {one: getattr(flags, one) for one in ("keys", "key_limit", "rate")}
    spec = msgspec.structs.replace(
        spec, **{one: value for one, value in chosen.items() if value is not None}
    )
    if spec.name != "pending":
        return [spec]
    sizes = sorted(set(flags.pending or PENDING))
    blocked = sorted({sizes[0], sizes[-1]})
    return [
        *(msgspec.structs.replace(spec, pending=size) for size in sizes),
        *(msgspec.structs.replace(spec, pending=size, blocked=True) for size in blocked),
    ]


def concurrency_of(flags: argparse.Namespace) -> int:
    chosen: int | None = flags.concurrency
    return chosen or (1 if flags.name == "pending" else CONCURRENCY)


def whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1")
    return int(text)


def wholes(text: str) -> list[int]:
    return [whole(one) for one in text.split(",")]


def text(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
