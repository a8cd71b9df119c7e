"""Works off a day of orders with a worker that is killed again and again; then reconciles.

With --server, the worker reaches the store through a server, which is killed as well.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import shutil
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rich.console import Console

from examples.checkout.model import Decision, Order, OrderFailed, Receipt, load_orders, load_stock
from examples.checkout.processes import ROOT, Process
from examples.checkout.progress import Progress
from examples.checkout.reconcile import checks, read_books, report
from examples.checkout.shop import Shop
from examples.checkout.workflow import checkout, decision
from stepwell import Run, RunEnded, Stepwell, StepwellError

MOST_PIECES = 20


@dataclass(frozen=True)
class Options:
    folder: Path
    orders: int
    kills: int
    seed: int
    port: int | None  # where a server serves the store; None = it is a file to all


async def demo(options: Options, console: Console) -> bool:
    """Return whether everything reconciles."""
    folder = options.folder
    (folder / "invoices").mkdir(parents=True, exist_ok=True)
    shop = Shop(folder / "shop.db")
    shop.create(load_stock())
    orders = load_orders()[: options.orders]
    env = {"CHECKOUT_DIR": str(folder), "PAYMENTS_SEED": str(options.seed)}
    service = Process("examples.checkout.service", folder / "service.log", env, announces=True)
    service.start()
    env["CHECKOUT_PORT"] = str(options.port)
    server = Process("examples.checkout.server", folder / "server.log", env, announces=True)
    store = folder / "orders.db" if options.port is None else f"tcp://127.0.0.1:{options.port}"
    try:
        url = await service.announced()
        env |= {"PAYMENTS_URL": url, "CHECKOUT_STORE": str(store)}
        worker = Process("examples.checkout.worker", folder / "worker.log", env)
        victims = [worker]
        if options.port is not None:
            server.start()
            await server.announced()
            victims = [server, worker]
        async with Stepwell(store) as app:
            with Progress(console, len(orders)) as progress:
                await work_off(orders, app, shop, victims, progress, options)
            books = await read_books(orders, app, url, shop)
    finally:
        await server.stop()
        await service.stop()
    found = checks(books)
    victims_are = "The worker was" if options.port is None else "Server and worker were"
    console.print(report(books, found, f"{victims_are} killed {progress.kills} times."))
    return not any(check.broken_by for check in found)


async def work_off(
    orders: list[Order],
    app: Stepwell,
    shop: Shop,
    victims: Sequence[Process],
    progress: Progress,
    options: Options,
) -> None:
    # An order that was started by an earlier, interrupted demo is found again by its id.
    runs = await app.start_many([checkout(order).with_options(id=order.id) for order in orders])
    already = sum([(await run.info()).ended for run in runs])
    if already:
        progress.say(f"going on: {already} of {len(orders)} orders have ended before")
    worker = victims[-1]
    worker.start()
    try:
        async with asyncio.TaskGroup() as group:
            meanwhile = [
                group.create_task(approve(app, shop)),
                group.create_task(kill(victims, progress, options, already)),
                *(group.create_task(mind(process)) for process in victims),
            ]
            await asyncio.gather(*(watch(run, progress) for run in runs))
            for task in meanwhile:
                task.cancel()
        code = await worker.end(signal.SIGTERM)
        if code not in (0, -signal.SIGTERM):  # the latter: it was only just starting
            raise RuntimeError(f"told to stop, the worker ended with {code}")
    finally:
        await worker.stop()


async def watch(run: Run[Receipt], progress: Progress) -> None:
    try:
        await run.result()
    except (OrderFailed, StepwellError):
        await progress.ended(failed=True)
    else:
        await progress.ended(failed=False)


async def approve(app: Stepwell, shop: Shop) -> None:
    """Be the person who decides about big orders."""
    while True:
        for order, quantity in await asyncio.to_thread(shop.waiting_for_approval):
            answer = Decision(approved=quantity <= MOST_PIECES, by="Rosa")
            with suppress(RunEnded):  # it was answered just before this process was killed
                await app.signal(order, decision, answer)
            await asyncio.to_thread(shop.mark_answered, order)
        await asyncio.sleep(0.3)


async def kill(
    victims: Sequence[Process], progress: Progress, options: Options, already: int
) -> None:
    """Kill one after another, in the middle of whatever they do, and start them again."""
    rng = Random(options.seed)
    points = kill_points(options.orders - already, options.kills)
    for count, victim in zip(points, itertools.cycle(victims), strict=False):
        await progress.reached(already + count)
        await asyncio.sleep(rng.uniform(0.0, 0.2))
        killed = victim.pid
        await victim.end(signal.SIGKILL)
        victim.start()
        progress.killed(f"kill -9 {killed}; {victim.name} {victim.pid} goes on")


async def mind(process: Process) -> None:
    while not process.died():  # noqa: ASYNC110 - only the operating system knows
        await asyncio.sleep(0.3)
    raise RuntimeError(f"the {process.name} ended by itself: see {process.name}.log")


def kill_points(orders: int, kills: int) -> Iterable[int]:
    """Spread the kills evenly over the orders that are left."""
    return (orders * number // (kills + 1) for number in range(1, kills + 1))


def parse(arguments: list[str]) -> tuple[Options, bool]:
    parser = argparse.ArgumentParser("examples.checkout.demo", description=__doc__)
    add = parser.add_argument
    add("--dir", type=Path, default=ROOT / "build" / "checkout", help="where all files are")
    add("--orders", type=int, default=len(load_orders()), help="how many of the orders")
    add("--kills", type=int, default=5, help="how often a process is killed")
    add("--seed", type=int, default=7, help="decides what the payment service does")
    add(
        "--server", type=int, metavar="PORT", help="serve the store there, and kill the server, too"
    )
    add("--fresh", action="store_true", help="start over; else an interrupted demo goes on")
    given = parser.parse_args(arguments)
    options = Options(given.dir.resolve(), given.orders, given.kills, given.seed, given.server)
    return options, given.fresh


def main(arguments: list[str]) -> int:
    options, fresh = parse(arguments)
    finished = options.folder / "reconciled"
    if fresh or finished.exists():
        shutil.rmtree(options.folder, ignore_errors=True)
    console = Console()
    reconciled = asyncio.run(demo(options, console))
    if reconciled:
        finished.touch()
    console.print("[green]It reconciles.[/]" if reconciled else "[red]It does not reconcile.[/]")
    return 0 if reconciled else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
