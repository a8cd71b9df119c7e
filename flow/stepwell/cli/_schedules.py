"""The commands of `stepwell schedules`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from stepwell._app.app import Stepwell
from stepwell._app.schedules import MOST_TICKS, Schedule, ScheduleInfo, ScheduleTick, schedule_info
from stepwell.cli import _print as out
from stepwell.cli._client import in_store
from stepwell.cli._options import JsonOption, StoreOption
from stepwell.cli._shapes import Shape, arguments_shape, iso

ScheduleArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of the schedule.")]


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="List schedules, and steer them.")
    group.command("list")(list_schedules)
    group.command()(show)
    group.command()(pause)
    group.command()(resume)
    group.command()(run)
    group.command()(delete)
    app.add_typer(group, name="schedules")


def list_schedules(store: StoreOption, as_json: JsonOption = False) -> None:
    """List the schedules, by id."""

    async def work(app: Stepwell) -> list[ScheduleInfo]:
        return await app.schedules()

    found = in_store(store, work)
    if as_json:
        out.document([schedule_shape(one) for one in found])
        return
    rows = [
        (
            one.id,
            one.name,
            state(one),
            one.when,
            out.when(one.next_at),
            out.when(one.last_at),
            one.module or "",
        )
        for one in found
    ]
    columns = ("id", "starts", "state", "when", "next", "last", "declared in")
    out.put_table(None, columns, rows) if rows else out.put("no schedules")


def state(one: ScheduleInfo) -> Text:
    if one.paused:
        return Text("paused", "yellow")
    return Text("over") if one.next_at is None else Text("on", "green")


def show(
    id: ScheduleArgument,
    store: StoreOption,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST_TICKS, help="How many ticks of the past.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show a schedule, and what became of its last ticks."""

    async def work(app: Stepwell) -> Shape:
        schedules = app.engine.schedules
        row = await schedules.row(id)
        plan = await schedules.plan(row)
        ticks = await app.get_schedule(id).history(limit=limit)
        return {
            **schedule_shape(schedule_info(row, plan)),
            "arguments": arguments_shape(plan.run.args, app.codec),
            "ticks": [tick_shape(tick) for tick in ticks],
        }

    shape = in_store(store, work)
    if as_json:
        out.document(shape)
    else:
        tell(shape)


def tell(shape: Shape) -> None:
    given = shape["arguments"]
    values = [out.compact(one) for one in given["positional"]]
    values += [f"{name}={out.compact(one)}" for name, one in given["named"].items()]
    shown = {**shape, "arguments": ", ".join(values)}
    for key, value in shown.items():
        if key != "ticks" and value not in (None, False, ""):
            typer.echo(f"{key.replace('_', ' '):<12}{value}")
    rows = [
        (
            tick["tick_at"],
            "asked for" if tick["manual"] else tick["status"] or "",
            tick["run_id"] or "",
            out.one_line(tick["why"], out.SHORT),
        )
        for tick in shape["ticks"]
    ]
    if rows:
        out.put_table("ticks", ("at", "outcome", "run", "note"), rows)


def pause(id: ScheduleArgument, store: StoreOption, as_json: JsonOption = False) -> None:
    """Have a schedule tick no more until it is resumed."""
    _steer(id, store, as_json, "paused", lambda schedule: schedule.pause())


def resume(id: ScheduleArgument, store: StoreOption, as_json: JsonOption = False) -> None:
    """Have a paused schedule tick again.

    What it would have started in between is not made up for.
    """
    _steer(id, store, as_json, "resumed", lambda schedule: schedule.resume())


def run(id: ScheduleArgument, store: StoreOption, as_json: JsonOption = False) -> None:
    """Start a run of a schedule now.

    Its ticks stay as they are.
    """

    async def work(app: Stepwell) -> str:
        return (await app.get_schedule(id).run_now()).id

    started = in_store(store, work)
    if as_json:
        out.document({"id": id, "run_id": started})
    else:
        typer.echo(started)


def delete(id: ScheduleArgument, store: StoreOption, as_json: JsonOption = False) -> None:
    """Delete a schedule and its history.

    Its runs stay. One that code declares is made again when a worker starts.
    """

    async def gone(schedule: Schedule[Any]) -> None:
        await schedule.info()  # which refuses one that is not there
        await schedule.delete()

    _steer(id, store, as_json, "deleted", gone)


def _steer(
    id: str,
    store: str,
    as_json: bool,
    done: str,
    verb: Callable[[Schedule[Any]], Awaitable[None]],
) -> None:
    async def work(app: Stepwell) -> None:
        await verb(app.get_schedule(id))

    in_store(store, work)
    if as_json:
        out.document({"id": id, "schedule": done})
    else:
        typer.echo(f"{id}: {done}")


def schedule_shape(one: ScheduleInfo) -> Shape:
    return _shape(asdict(one))


def tick_shape(tick: ScheduleTick) -> Shape:
    return _shape(asdict(tick))


def _shape(fields: dict[str, Any]) -> Shape:
    return {
        key: iso(value) if isinstance(value, datetime) else value for key, value in fields.items()
    }
