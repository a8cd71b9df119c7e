"""Works off a day of orders with a worker that is killed again and again; then reconciles."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
from collections.abc import Iterable
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
    try:
        url = await service.announced()
        env["PAYMENTS_URL"] = url
        worker = Process("examples.checkout.worker", folder / "worker.log", env)
        async with Stepwell(folder / "orders.db") as app:
            with Progress(console, len(orders)) as progress:
                await work_off(orders, app, shop, worker, progress, options)
            books = await read_books(orders, app, url, shop)
    finally:
        await service.stop()
    found = checks(books)
    console.print(report(books, found, progress.kills))
    return not any(check.broken_by for check in found)


async def work_off(
    orders: list[Order],
    app: Stepwell,
    shop: Shop,
    worker: Process,
    progress: Progress,
    options: Options,
) -> None:
    # An order that was started by an earlier, interrupted demo is found again by its id.
    runs = await app.start_many([checkout(order).with_options(id=order.id) for order in orders])
    already = sum([(await run.info()).ended for run in runs])
    if already:
        progress.say(f"going on: {already} of {len(orders)} orders have ended before")
    worker.start()
    try:
        async with asyncio.TaskGroup() as group:
            meanwhile = [
                group.create_task(approve(app, shop)),
                group.create_task(kill(worker, progress, options, already)),
                group.create_task(mind(worker)),
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


async def kill(worker: Process, progress: Progress, options: Options, already: int) -> None:
    """Kill the worker, in the middle of whatever it does, and start it again."""
    rng = Random(options.seed)
    for count in kill_points(options.orders - already, options.kills):
        await progress.reached(already + count)
        await asyncio.sleep(rng.uniform(0.0, 0.2))
        killed = worker.pid
        await worker.end(signal.SIGKILL)
        worker.start()
        progress.killed(f"kill -9 {killed}; worker {worker.pid} goes on")


async def mind(worker: Process) -> None:
    while not worker.died():  # noqa: ASYNC110 - only the operating system knows
        await asyncio.sleep(0.3)
    raise RuntimeError("the worker ended by itself: see worker.log")


def kill_points(orders: int, kills: int) -> Iterable[int]:
    """Spread the kills evenly over the orders that are left."""
    return (orders * number // (kills + 1) for number in range(1, kills + 1))


def parse(arguments: list[str]) -> tuple[Options, bool]:
    parser = argparse.ArgumentParser("examples.checkout.demo", description=__doc__)
    add = parser.add_argument
    add("--dir", type=Path, default=ROOT / "build" / "checkout", help="where all files are")
    add("--orders", type=int, default=len(load_orders()), help="how many of the orders")
    add("--kills", type=int, default=5, help="how often the worker is killed")
    add("--seed", type=int, default=7, help="decides what the payment service does")
    add("--fresh", action="store_true", help="start over; else an interrupted demo goes on")
    given = parser.parse_args(arguments)
    return Options(given.dir.resolve(), given.orders, given.kills, given.seed), given.fresh


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
