"""The command that serves the user's code."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import structlog
import typer

from stepwell._app.app import Stepwell
from stepwell._app.shutdown import StopRequests
from stepwell._app.worker import Worker
from stepwell.cli import _notify
from stepwell.cli._client import opened
from stepwell.cli._loading import app_of, imported, split
from stepwell.cli._logs import log_to_stderr
from stepwell.cli._options import LogLevelOption, OwnStoreOption
from stepwell.cli._refusal import Refusal, refusals
from stepwell.cli._supervised import Supervised, supervisor_line
from stepwell.cli._supervisor import Supervisor
from stepwell_runtime.log import log

ModuleArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODULE[:app]",
        help="The module to import, and the name of its Stepwell instance "
        "(default: `app`, or the only one).",
    ),
]


def add_to(app: typer.Typer) -> None:
    app.command()(worker)


def worker(
    module: ModuleArgument,
    store: OwnStoreOption = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="NAME[=N]",
            help="A queue to serve, and how many of its runs at once; repeat for several.",
            show_default="default",
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Runs and tasks at once.")] = 100,
    step_concurrency: Annotated[
        int | None, typer.Option(min=1, help="Steps at once.", show_default="as --concurrency")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Plain functions at once.")] = 32,
    child_processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            help="Plain functions with executor='process' at once.",
            show_default="one for each CPU",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="Run so many workers, each in a process of its own, and replace those that die. "
            "All limits are for each of them.",
            show_default="one, in this process",
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that running steps get to end when it stops.")
    ] = 10.0,
    max_jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after so many runs and tasks.", show_default="never"),
    ] = None,
    max_memory: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="MIB",
            help="Stop once the process has so much memory.",
            show_default="never",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="What the worker is called; with --processes, a number is added.",
            show_default="host and process",
        ),
    ] = None,
    log_level: LogLevelOption = "info",
) -> None:
    """Serve a module's workflows and tasks until SIGTERM.

    Ctrl+C does the same. A second signal stops at once; steps that were running are repeated later.
    With --processes, a worker that stops by --max-jobs or --max-memory is replaced at once.
    """
    log_to_stderr(log_level)
    line = supervisor_line()
    if processes is not None and line is None:
        raise typer.Exit(asyncio.run(Supervisor(processes, name).run()))
    supervised = None if line is None else Supervised(line, grace)
    with refusals():
        found, attribute = split(module, "MODULE or MODULE:app")
        app = app_of(imported(found), attribute, store)
        served = app.definitions()
        if not served:
            raise Refusal(f"{found!r} defines no workflow or task: there is nothing to serve")
        queues = queues_of(queue or ["default"])
        try:
            serving = app.worker(
                queues=queues,
                concurrency=concurrency,
                step_concurrency=step_concurrency,
                threads=threads,
                child_processes=child_processes,
                grace=grace,
                max_jobs=max_jobs,
                max_memory=max_memory,
                name=name,
            )
        except ValueError as error:
            raise Refusal(str(error)) from None
        if supervised is not None:  # lines of several workers are mixed on stderr
            structlog.contextvars.bind_contextvars(process=os.getpid())
        log.info(
            "worker_starts",
            store=str(app.settings.store),
            queues=queue or ["default"],
            serves=sorted({one.name for one in served.values()}),
        )
        left = {one.queue for one in served.values() if one.queue is not None} - queues.keys()
        if left:
            log.info(
                "queues_left_to_others",
                queues=sorted(left),
                hint="functions of this module are on them: serve them with --queue NAME, here or "
                "in another worker",
            )
        asyncio.run(serve(app, serving, supervised))
        log.info("worker_stopped")


def queues_of(given: list[str]) -> dict[str, int | None]:
    """Return the queues of `NAME` and `NAME=N`, each with its limit; None = no other than all."""
    queues: dict[str, int | None] = {}
    for one in given:
        name, _, most = one.rpartition("=")
        limited = bool(name) and most.isascii() and most.isdigit()
        queues[name if limited else one] = int(most) if limited else None
    return queues


async def serve(app: Stepwell, serving: Worker, supervised: Supervised | None) -> None:
    def serves(requests: StopRequests) -> None:
        if supervised is not None:
            supervised.serves(requests)
        else:
            _notify.notify(_notify.READY)

    async with opened(app):
        await serving._serve(serves)
