"""The command line of the benchmark."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench import imports, memory, queue_flags, server_memory
from bench.queue_flags import CONCURRENCY, add_queue_flags, concurrency_of, whole
from bench.report import as_text, report
from bench.rows import rows_as_text, rows_of
from bench.samples import BrokenSample, take
from bench.spec import SCENARIOS, Spec, Unreconciled

PARKED: Final = 10_000
FINISHED: Final = 100_000
TASKS: Final = 1_000_000


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 when a sample does not reconcile or dies, 2 when a flag is wrong."""
    command = parser()
    flags = command.parse_args(arguments)
    complaint = flags.complaint(flags)
    if complaint:
        command.error(complaint)
    try:
        found, text, good = flags.measure(flags)
    except Unreconciled as error:
        print(f"not reconciled, so there is no figure: {error}", file=sys.stderr)
        return 1
    except BrokenSample as error:
        print(error, file=sys.stderr)
        return 1
    print(text)
    if flags.json is not None:
        flags.json.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    return 0 if good else 1


Answer = tuple[dict[str, Any], str, bool]


def measure_load(flags: argparse.Namespace) -> Answer:
    found = measured(spec_of(flags), flags)
    return found, as_text(found), True


def measure_queue(flags: argparse.Namespace) -> Answer:
    specs = queue_flags.specs_of(spec_of(flags), flags)
    if flags.name != "pending":
        found = measured(specs[0], flags)
        return found, as_text(found), True
    found = rows_of(specs, [measured(spec, flags) for spec in specs])
    return found, rows_as_text(found), True


def spec_of(flags: argparse.Namespace) -> Spec:
    return Spec(
        flags.name,
        flags.executions,
        concurrency_of(flags),
        flags.durability,
        flags.loop_load,
        flags.mode,
        flags.workers,
    )


def measured(spec: Spec, flags: argparse.Namespace) -> dict[str, Any]:
    return report(spec, list(take(spec, flags.runs, flags.dir)))


def misplaced_workers(flags: argparse.Namespace) -> str | None:
    """What is wrong with --workers, if anything is."""
    if not flags.workers:
        return None
    if flags.mode == "embedded":
        return "--workers: they are processes around a server, so this needs --mode tcp"
    if flags.name in ("enqueue", "enqueue-each"):
        return f"--workers: nothing works while {flags.name} is measured"
    return None


def misplaced_queue_flags(flags: argparse.Namespace) -> str | None:
    return misplaced_workers(flags) or queue_flags.complaint(flags)


def measure_memory(flags: argparse.Namespace) -> Answer:
    if flags.server:
        found = server_memory.measure(flags.tasks or TASKS, flags.durability, flags.dir)
        return found, server_memory.as_text(found), bool(found["flat"])
    parked, finished = flags.parked or PARKED, flags.finished or FINISHED
    found = memory.measure(parked, finished, flags.durability, flags.dir)
    return found, memory.as_text(found), bool(found["flat"])


def misplaced_counts(flags: argparse.Namespace) -> str | None:
    """What is wrong with the counts of `memory`, if anything is."""
    if flags.server and (flags.parked or flags.finished):
        return "--parked and --finished are for a worker: with --server, say --tasks"
    if flags.tasks and not flags.server:
        return "--tasks is for a server: say --server, or --parked and --finished"
    return None


def measure_import(flags: argparse.Namespace) -> Answer:
    found = imports.measure(flags.runs)
    return found, imports.as_text(found), not found["optional_imported"]


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures Stepwell; docs/how-to/measure.md explains the figures.",
    )
    commands = top.add_subparsers(required=True, metavar="workflow|queue|memory|import")
    flow = commands.add_parser("workflow", help="executions of a small workflow")
    flow.add_argument("--scenario", dest="name", choices=SCENARIOS, required=True)
    queue = commands.add_parser("queue", help="plain tasks that do nothing")
    add_queue_flags(queue)
    for one in (flow, queue):
        add_load_flags(one)
    queue.set_defaults(measure=measure_queue, complaint=misplaced_queue_flags)
    kept = commands.add_parser(
        "memory", help="memory of a worker with many parked and finished runs, or of a server"
    )
    kept.add_argument("--parked", type=whole, help=f"runs that wait ({PARKED})")
    kept.add_argument("--finished", type=whole, help=f"runs that end ({FINISHED})")
    kept.add_argument("--server", action="store_true", help="watch a server's process instead")
    kept.add_argument("--tasks", type=whole, help=f"with --server: go through it ({TASKS})")
    add_store_flags(kept, "process")
    kept.set_defaults(measure=measure_memory, complaint=misplaced_counts)
    imported = commands.add_parser("import", help="time of `import stepwell`")
    imported.add_argument("--runs", type=whole, default=15, help="processes for each import (15)")
    imported.set_defaults(measure=measure_import, complaint=no_complaint)
    for one in (flow, queue, kept, imported):
        one.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    return top


def add_load_flags(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--mode",
        choices=("embedded", "tcp"),
        default="embedded",
        help="clients and worker open the file, or a server's process serves it to them (embedded)",
    )
    one.add_argument(
        "--workers",
        type=whole,
        default=0,
        metavar="N",
        help="tcp: workers in so many processes of their own (one, in that of the clients)",
    )
    one.add_argument("--executions", type=whole, default=5000, help="per sample (5000)")
    one.add_argument(
        "--concurrency",
        type=whole,
        help=f"executions at a time ({CONCURRENCY}; of the workload pending: 1)",
    )
    one.add_argument("--runs", type=whole, default=5, help="samples (5)")
    one.add_argument(
        "--loop-load",
        type=part,
        default=0.0,
        metavar="PART",
        help="part of the event loop's time that other work takes, 0 to 0.95 (0)",
    )
    add_store_flags(one, "full")
    one.set_defaults(measure=measure_load, complaint=misplaced_workers)


def add_store_flags(one: argparse.ArgumentParser, durability: str) -> None:
    one.add_argument(
        "--durability",
        choices=("full", "process"),
        default=durability,
        help=f"full survives power loss, process survives kill -9 ({durability})",
    )
    one.add_argument(
        "--dir", type=folder, metavar="FOLDER", help="on the disk to measure (temporary folder)"
    )


def part(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 0.95:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number from 0 to 0.95")
    return value


def folder(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no folder")
    return path


def no_complaint(_: argparse.Namespace) -> None:
    return None
