"""`stepwell queue set`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from stepwell._app.queues import QueueHandle
from stepwell._queues import QueueChanges, Rate
from stepwell._retention import Retention
from stepwell.cli import _print as out
from stepwell.cli._client import in_store
from stepwell.cli._options import JsonOption, QueueArgument, StoreOption, seconds_of
from stepwell.cli._refusal import Refusal

NONE = "none"


def or_none(text: str, made: Callable[[str], Any]) -> Any:
    return NONE if text == NONE else made(text)


def number_of(text: str) -> int | str:
    def made(text: str) -> int:
        if not re.fullmatch(r"\d+", text):
            raise typer.BadParameter(f"{text!r} is no whole number: write one, or none")
        return int(text)

    found: int | str = or_none(text, made)
    return found


def span_of(text: str) -> float | str:
    found: float | str = or_none(text, seconds_of)
    return found


def rate_of(text: str) -> Rate | str:
    """Return a rate such as 100/1m, or 100/1m/10 with another burst than 100."""

    def made(text: str) -> Rate:
        found = re.fullmatch(r"(\d+)/([^/]+)(?:/(\d+))?", text)
        if found is None:
            raise typer.BadParameter(f"{text!r} is no rate: write 100/1m, 100/1m/10 or none")
        try:
            burst = None if found[3] is None else int(found[3])
            return Rate(int(found[1]), seconds_of(found[2]), burst)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    rate: Rate | str = or_none(text, made)
    return rate


def option(metavar: str, parser: Callable[[str], Any], shown: str) -> Any:
    return typer.Option(parser=parser, metavar=metavar, help=shown, show_default="as it is")


def set_queue(
    name: QueueArgument,
    store: StoreOption,
    limit: Annotated[Any, option("N", number_of, "Runs at once, of all workers.")] = None,
    key_limit: Annotated[Any, option("N", number_of, "Runs of one key at once.")] = None,
    rate: Annotated[
        Any, option("N/SPAN[/BURST]", rate_of, "How often runs start: 100/1m, 100/1m/10.")
    ] = None,
    key_rate: Annotated[
        Any, option("N/SPAN[/BURST]", rate_of, "How often runs of one key start.")
    ] = None,
    max_length: Annotated[Any, option("N", number_of, "Runs that are ready.")] = None,
    ageing: Annotated[
        Any, option("SPAN", span_of, "Waiting that counts as one step of priority.")
    ] = None,
    keep_age: Annotated[
        Any, option("SPAN", span_of, "How long ended runs are kept; with --keep-count one setting.")
    ] = None,
    keep_count: Annotated[Any, option("N", number_of, "How many ended runs are kept.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Change what holds for a queue, for all workers at once.

    `none` takes a setting away; what is not given stays. It lasts until the declaration in the code
    changes.
    """
    given = {
        "limit": limit,
        "key_limit": key_limit,
        "rate": rate,
        "key_rate": key_rate,
        "max_length": max_length,
        "ageing": ageing,
    }
    changes: Any = {key: taken(value) for key, value in given.items() if value is not None}
    if keep_age is not None or keep_count is not None:
        age, count = taken(keep_age), taken(keep_count)
        none = age is None and count is None
        changes["retention"] = None if none else Retention(age=age, count=count)
    if not changes:
        raise typer.BadParameter("give at least one setting to change")
    in_store(store, lambda app: configured(app.queue(name), changes))
    if as_json:
        out.document({"queue": name, "changed": list(changes)})
    else:
        typer.echo(f"{name}: changed {', '.join(changes)}")


def taken(value: Any) -> Any:
    return None if value == NONE else value


def configured(queue: QueueHandle, changes: QueueChanges) -> Awaitable[None]:
    async def work() -> None:
        try:
            await queue.configure(**changes)
        except (TypeError, ValueError) as error:
            raise Refusal(str(error)) from None

    return work()
