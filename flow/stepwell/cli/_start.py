"""The command that starts a run of the user's code."""

from __future__ import annotations

import asyncio
import inspect
from datetime import datetime
from typing import Annotated, Any, Literal, TypeGuard, cast

import msgspec
import typer

from stepwell._app.app import Stepwell
from stepwell._app.handles import Run
from stepwell._calls import TaskCall, WorkflowCall
from stepwell._terms import StartOptions
from stepwell.cli import _print as out
from stepwell.cli._client import opened
from stepwell.cli._loading import app_of, definition_of, imported, split
from stepwell.cli._options import OwnStoreOption, moment_of, seconds_of
from stepwell.cli._refusal import Refusal, refusals
from stepwell_runtime.codec import Codec
from stepwell_runtime.definitions import Definition, TaskDefinition


def add_to(app: typer.Typer) -> None:
    app.command()(start)


def start(
    workflow: Annotated[
        str,
        typer.Argument(
            metavar="[MODULE:]WORKFLOW", help="A workflow or task: its name, or its attribute."
        ),
    ],
    module: Annotated[
        str | None,
        typer.Option("--module", metavar="MODULE[:app]", help="The module where it is defined."),
    ] = None,
    arguments: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="ARGS",
            help="Its arguments, a JSON list or object; the answer is JSON, too.",
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            "--id", help="The id of the run; the same id again finds it.", show_default="a new one"
        ),
    ] = None,
    delay: Annotated[
        float | None,
        typer.Option(parser=seconds_of, metavar="SPAN", help="Not before: 90, 15m, 12h, 30d."),
    ] = None,
    at: Annotated[
        datetime | None,
        typer.Option(
            parser=moment_of,
            metavar="MOMENT",
            help="Or not before this: ISO 8601; without a zone, local time.",
        ),
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", help="The queue.", show_default="as it is decorated")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(help="Higher goes first.", show_default="as it is decorated")
    ] = None,
    expires: Annotated[
        float | None,
        typer.Option(
            parser=seconds_of,
            metavar="SPAN",
            help="Not started within it, it never runs.",
            show_default="as it is decorated",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="Whose limits and turns in the queue it shares.", show_default="as it is decorated"
        ),
    ] = None,
    unique: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="While another run of this name has the key, that one is answered."
        ),
    ] = None,
    unique_while: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help='Until when a run has it: "unended" or "pending", until it begins.',
            show_default="unended",
        ),
    ] = None,
    unique_for: Annotated[
        float | None,
        typer.Option(parser=seconds_of, metavar="SPAN", help="Or for so long, even if it ends."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="If that one has not begun, it gets these arguments."),
    ] = False,
    after: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Not before this run has completed; repeat for several."),
    ] = None,
    after_failed: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help='If one of those does not complete: "fail", or "start" all the same.',
            show_default="fail",
        ),
    ] = None,
    store: OwnStoreOption = None,
) -> None:
    """Start a workflow or enqueue a task.

    Prints the id of the run. The arguments are made to fit the annotations: dataclasses, models,
    dates and so on.
    """
    with refusals():
        spec, name = sought(workflow, module)
        found, attribute = split(spec, "MODULE or MODULE:app")
        loaded = imported(found)
        app = app_of(loaded, attribute, store)
        definition = definition_of(loaded, name, app)
        args, kwargs = fitted(definition, arguments_in(arguments), app.codec)
        asked: StartOptions = {
            "id": id,
            "delay": delay,
            "at": at,
            "queue": queue,
            "priority": priority,
            "expires": expires,
            "key": key,
            "unique": unique,
            "unique_while": cast("Literal['unended', 'pending'] | None", unique_while),
            "unique_for": unique_for,
            "replace": replace or None,
            "after": after or None,
            "after_failed": cast("Literal['fail', 'start'] | None", after_failed),
        }
        call = asking(call_of(definition, args, kwargs), asked)
        run = asyncio.run(started(app, call))
    if arguments is not None:
        out.document({"id": run.id, "created": run.created, "found": run.found})
        return
    typer.echo(run.id)
    if not run.created:
        typer.echo(f"{run.id} was there already, and is {run.found}", err=True)


def sought(workflow: str, module: str | None) -> tuple[str, str]:
    """Return where to look and what for."""
    if module is not None:
        return module, workflow
    found, colon, name = workflow.partition(":")
    if not colon:
        raise Refusal(f"where is {workflow!r} defined? Write MODULE:{workflow} or give --module")
    if not name:
        raise Refusal(f"{workflow!r}: write MODULE:WORKFLOW")
    return found, name


def arguments_in(text: str | None) -> tuple[list[Any], dict[str, Any]]:
    if text is None:
        return [], {}
    given = json_in(text)
    if is_list(given):
        return given, {}
    if is_object(given):
        return [], given
    raise Refusal(
        "--json takes the arguments as a list or an object, "
        f"such as '[1, \"a\"]' or '{{\"count\": 1}}', not {text}"
    )


def is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def json_in(text: str, option: str = "--json") -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        said = str(error).removeprefix("JSON is malformed: ")
        raise Refusal(f"{option} {text!r} is no JSON: {said}") from None


def fitted(
    definition: Definition, given: tuple[list[Any], dict[str, Any]], codec: Codec
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Bind the arguments to the parameters and convert each to its annotation."""
    try:
        bound = definition.signature.bind(*given[0], **given[1])
    except TypeError as error:
        raise Refusal(f"{definition.name}{definition.signature}: {error}") from None
    for name, value in bound.arguments.items():
        annotation = definition.parameter_types.get(name, Any)
        where = f"argument {name!r} of {definition.name}"
        kind = definition.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            made: Any = tuple(codec.convert(item, annotation, where) for item in value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            made = {key: codec.convert(item, annotation, where) for key, item in value.items()}
        else:
            made = codec.convert(value, annotation, where)
        bound.arguments[name] = made
    return bound.args, bound.kwargs


def call_of(
    definition: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> WorkflowCall[Any] | TaskCall[Any]:
    if isinstance(definition, TaskDefinition):
        return TaskCall(definition, args, kwargs)
    return WorkflowCall(definition, args, kwargs)


def asking(
    call: WorkflowCall[Any] | TaskCall[Any], asked: StartOptions
) -> WorkflowCall[Any] | TaskCall[Any]:
    try:
        return call.with_options(**asked)
    except (TypeError, ValueError) as error:
        raise Refusal(str(error)) from None


async def started(app: Stepwell, call: WorkflowCall[Any] | TaskCall[Any]) -> Run[Any]:
    async with opened(app):
        try:
            return await (app.enqueue(call) if isinstance(call, TaskCall) else app.start(call))
        except ValueError as error:  # what fits only together, or not with the decorator
            raise Refusal(str(error)) from None
