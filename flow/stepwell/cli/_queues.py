"""`stepwell queues`, and the commands of `stepwell queue`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from stepwell._app.app import Stepwell
from stepwell._app.queues import QueueInfo
from stepwell._queues import Queue, Rate, settings_of
from stepwell.cli import _print as out
from stepwell.cli._client import in_store
from stepwell.cli._options import (
    JsonOption,
    QueueArgument,
    ReasonOption,
    StoreOption,
    moment_of,
    seconds_of,
)
from stepwell.cli._queue_settings import set_queue
from stepwell.cli._refusal import Refusal
from stepwell.cli._shapes import Shape, iso
from stepwell_queue.clock import utc
from stepwell_queue.contract import Status


def add_to(app: typer.Typer) -> None:
    app.command()(queues)
    group = typer.Typer(no_args_is_help=True, help="Show a queue, and steer it.")
    group.command()(show)
    group.command()(pause)
    group.command()(resume)
    group.command()(drain)
    group.command()(purge)
    group.command("set")(set_queue)
    app.add_typer(group, name="queue")


# --- looking ---


def queues(store: StoreOption, as_json: JsonOption = False) -> None:
    """List the queues.

    How much is ready and running, how old the oldest work is, how many runs end and fail per minute
    (in the last five minutes), and how many tasks have failed in all.
    """

    async def work(app: Stepwell) -> list[QueueInfo]:
        return await app.queues()

    found = in_store(store, work)
    if as_json:
        out.document([queue_shape(one) for one in found])
        return
    rows = [
        (
            one.name,
            state(one),
            str(one.ready),
            str(one.running),
            "" if one.oldest_age is None else out.took(one.oldest_age),
            per_minute(one.throughput[1].ended),
            per_minute(one.throughput[1].failed),
            str(one.dead_letters),
            "; ".join(limits(one.settings)),
        )
        for one in found
    ]
    columns = (
        "queue", "state", "ready", "running", "oldest", "ended/min", "failed/min", "dead letters",
        "settings",
    )  # fmt: skip
    out.put_table(None, columns, rows) if rows else out.put("no queues")


def show(name: QueueArgument, store: StoreOption, as_json: JsonOption = False) -> None:
    """Show a queue: its state, what is in it, how fast it is, and what is set for it."""
    found = in_store(store, lambda app: app.queue(name).info())
    if as_json:
        out.document(queue_shape(found))
        return
    counts = [f"{count} {status}" for status, count in found.counts.items() if count]
    lines = {
        "queue": found.name,
        "state": str(state(found)),
        "reason": found.pause_reason,
        "settings": "; ".join(limits(found.settings)),
        "ready": str(found.ready),
        "running": str(found.running),
        "oldest": "" if found.oldest_age is None else out.took(found.oldest_age),
        "runs": ", ".join(counts),
    }
    for key, value in lines.items():
        if value:
            typer.echo(f"{key:<10}{out.one_line(value)}")
    rows = [
        (out.took(one.window), per_minute(one.ended), per_minute(one.failed))
        for one in found.throughput
    ]
    out.put_table(None, ("in the last", "ended/min", "failed/min"), rows)


def state(one: QueueInfo) -> Text:
    if not one.paused:
        return Text("open", "green")
    until = "" if one.paused_until is None else f" until {out.when(one.paused_until)}"
    return Text(f"paused{until}", "yellow")


def per_minute(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def limits(settings: Queue) -> list[str]:
    """Say what is set for a queue, each thing as `stepwell queue set` takes it."""
    said: dict[str, Any] = {
        "limit": settings.limit,
        "key-limit": settings.key_limit,
        "rate": rate_text(settings.rate),
        "key-rate": rate_text(settings.key_rate),
        "max-length": settings.max_length,
        "ageing": settings.ageing and f"{settings.ageing:g}s",
    }
    kept = settings.retention
    if kept is not None:
        said["keep-age"] = None if kept.age_seconds is None else f"{kept.age_seconds:g}s"
        said["keep-count"] = kept.count
        said["with a rule of their own:"] = ", ".join(kept.statuses or ()) or None
    return [f"{key} {value}" for key, value in said.items() if value is not None]


def rate_text(rate: Rate | None) -> str | None:
    if rate is None:
        return None
    burst = "" if rate.burst == rate.count else f"/{rate.burst}"
    return f"{rate.count}/{rate.per:g}s{burst}"


def queue_shape(one: QueueInfo) -> Shape:
    settings = settings_of(one.settings)
    return {
        "queue": one.name,
        "paused": one.paused,
        "paused_until": iso(one.paused_until),
        "pause_reason": one.pause_reason,
        "ready": one.ready,
        "running": one.running,
        "oldest_age": one.oldest_age,
        "counts": dict(one.counts),
        "dead_letters": one.dead_letters,
        "throughput": [
            {"window": rate.window, "ended": rate.ended, "failed": rate.failed}
            for rate in one.throughput
        ],
        "settings": {
            "limit": settings.limit,
            "key_limit": settings.key_limit,
            "rate": rate_shape(one.settings.rate),
            "key_rate": rate_shape(one.settings.key_rate),
            "max_length": settings.max_length,
            "ageing": settings.ageing,
            "keep_age": settings.keep_age,
            "keep_count": settings.keep_count,
            "keep_statuses": {
                Status(status).name.lower(): {"age": keep.age, "count": keep.count}
                for status, keep in settings.keep_statuses.items()
            }
            or None,
        },
    }


def rate_shape(rate: Rate | None) -> Shape | None:
    if rate is None:
        return None
    return {"count": rate.count, "per": rate.per, "burst": rate.burst}


# --- steering ---


def pause(
    name: QueueArgument,
    store: StoreOption,
    until: Annotated[
        datetime | None,
        typer.Option(
            parser=moment_of,
            metavar="MOMENT",
            help="When it is resumed: ISO 8601; without a zone, local time.",
            show_default="when `resume` is said",
        ),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            "--for", parser=seconds_of, metavar="SPAN", help="Or how long it is paused: 30m, 12h."
        ),
    ] = None,
    reason: ReasonOption = "",
    as_json: JsonOption = False,
) -> None:
    """Have no worker begin anything of a queue.

    What is running goes on. A pause outlives restarts.
    """
    if until is not None and duration is not None:
        raise typer.BadParameter("--until and --for both say when it is resumed: give one of them")

    async def work(app: Stepwell) -> None:
        end = until
        if duration is not None:
            end = utc(app.engine.store.clock.now()) + timedelta(seconds=duration)
        try:
            await app.queue(name).pause(end, reason=reason)
        except ValueError as error:
            raise Refusal(str(error)) from None

    in_store(store, work)
    done(name, "paused", as_json)


def resume(name: QueueArgument, store: StoreOption, as_json: JsonOption = False) -> None:
    """End the pause of a queue."""
    in_store(store, lambda app: app.queue(name).resume())
    done(name, "open", as_json)


def drain(
    name: QueueArgument,
    store: StoreOption,
    timeout: Annotated[
        float | None,
        typer.Option(
            parser=seconds_of,
            metavar="SPAN",
            help="How long to wait at most; then the exit code is 1.",
            show_default="for as long as it takes",
        ),
    ] = None,
    reason: ReasonOption = "",
    as_json: JsonOption = False,
) -> None:
    """Pause a queue, and wait until nothing of it is running.

    It stays paused.
    """

    async def work(app: Stepwell) -> None:
        try:
            await app.queue(name).drain(timeout=timeout, reason=reason)
        except TimeoutError as error:
            raise Refusal(str(error)) from None

    in_store(store, work)
    done(name, "paused", as_json)


def purge(
    name: QueueArgument,
    store: StoreOption,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether that is meant.")] = False,
    reason: ReasonOption = "",
    as_json: JsonOption = False,
) -> None:
    """Cancel all runs of a queue that no worker has begun yet.

    Children of workflows stay, since their parents wait for them.
    """
    if not yes:
        question = f"Cancel all runs of {name!r} that no worker has begun?"
        typer.confirm(question, abort=True, err=True)
    cancelled = in_store(store, lambda app: app.queue(name).purge(reason=reason, confirm=True))
    if as_json:
        out.document({"queue": name, "cancelled": cancelled})
    else:
        typer.echo(f"cancelled {out.counted(cancelled, 'run')}")


def done(name: str, word: str, as_json: bool) -> None:
    if as_json:
        out.document({"queue": name, "state": word})
    else:
        typer.echo(f"{name}: {word}")
