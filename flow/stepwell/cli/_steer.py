"""Commands that talk to a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from stepwell._app.app import Stepwell
from stepwell.cli import _print as out
from stepwell.cli._client import in_store
from stepwell.cli._loading import imported, in_app, signal_of, split
from stepwell.cli._options import (
    ActorOption,
    JsonOption,
    ReasonOption,
    RunArgument,
    StoreOption,
    login,
)
from stepwell.cli._refusal import Refusal, refusals
from stepwell.cli._start import is_object, json_in


def add_to(app: typer.Typer) -> None:
    app.command()(signal)
    app.command()(rollback)
    app.command()(resume_rollback)
    app.command()(fork)


def signal(
    id: RunArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the signal.")],
    store: StoreOption,
    value: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="VALUE", help="Its value, as JSON; the answer is JSON, too."
        ),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option(
            "--module",
            metavar="MODULE",
            help="Import it, and make the value fit the type of its Signal of that name.",
        ),
    ] = None,
) -> None:
    """Send a signal to a run.

    It is stored until the run takes it. Without --module it carries plain JSON data, which fits
    signals of plain types only.
    """
    with refusals():
        given = None if value is None else json_in(value)
        made = given if module is None else fitted(module, name, given)

    async def work(app: Stepwell) -> None:
        try:
            await app.signal(id, name, made)
        except (TypeError, ValueError) as error:
            raise Refusal(str(error)) from None

    in_store(store, work)
    if value is not None:
        out.document({"id": id, "signal": name})
    else:
        typer.echo(f"{id}: signal {name} is stored")


def fitted(module: str, name: str, value: Any) -> Any:
    from stepwell_runtime.codec import Codec

    found = signal_of(imported(split(module, "--module MODULE")[0]), name)
    return Codec().convert(value, found.type, f"signal {name!r}")


def rollback(
    id: RunArgument,
    store: StoreOption,
    reason: ReasonOption = "",
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a held run roll back."""
    asked(id, store, reason, actor, as_json, lambda app: app.roll_back)


def resume_rollback(
    id: RunArgument,
    store: StoreOption,
    reason: ReasonOption = "",
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try the failed undos of a run again.

    Of a run that ended with its rollback incomplete.
    """
    asked(id, store, reason, actor, as_json, lambda app: app.resume_rollback)


def fork(
    id: RunArgument,
    store: StoreOption,
    from_step: Annotated[
        str,
        typer.Option("--from", metavar="STEP", help="The step to begin with: its name or path."),
    ],
    new_id: Annotated[
        str | None, typer.Option("--id", help="Of the new run.", show_default="a new one")
    ] = None,
    changes: Annotated[
        str | None,
        typer.Option(
            "--changes", metavar="ARGS", help="Arguments that differ: a JSON object, by name."
        ),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option(
            "--module",
            metavar="MODULE[:app]",
            help="With --changes: import it, and make them fit the arguments of its workflow.",
        ),
    ] = None,
    reason: ReasonOption = "",
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a new run from a step of another one.

    It takes over what that one has recorded before the step; the step and all after it are executed
    anew. The other run stays as it is.
    """
    if (changes is None) != (module is None):
        raise typer.BadParameter("--changes needs --module, and the other way round")
    who = login() if actor is None else actor

    async def work(app: Stepwell) -> str:
        changed = {} if changes is None else await changed_arguments(app, id, changes)
        try:
            run = await app.fork(
                id, from_step=from_step, id=new_id, changes=changed, reason=reason, actor=who
            )
        except TypeError as error:
            raise Refusal(str(error)) from None
        return run.id

    made = in_store(store, work) if module is None else in_app(module, store, work)
    if as_json:
        out.document({"id": made, "forked_from": id})
    else:
        typer.echo(made)


async def changed_arguments(app: Stepwell, id: str, text: str) -> dict[str, Any]:
    """Make what was written as JSON fit the arguments of a run's workflow."""
    given = json_in(text, "--changes")
    if not is_object(given):
        raise Refusal(f"--changes takes an object of arguments by name, not {text}")
    run = await app.info(id)
    of_its_name = (one for one in app.definitions().values() if one.name == run.name)
    fitting = [one for one in of_its_name if one.version == run.version]
    types = fitting[0].parameter_types if fitting else {}
    return {
        name: app.codec.convert(value, types.get(name, Any), f"argument {name!r} of {run.name}")
        for name, value in given.items()
    }


def asked(
    id: str,
    store: str,
    reason: str,
    actor: str | None,
    as_json: bool,
    verb: Callable[[Stepwell], Callable[..., Awaitable[str]]],
) -> None:
    who = login() if actor is None else actor

    async def work(app: Stepwell) -> str:
        return await verb(app)(id, reason=reason, actor=who)

    status = in_store(store, work)
    if as_json:
        out.document({"id": id, "status": status})
    else:
        typer.echo(f"{id}: {status}")
