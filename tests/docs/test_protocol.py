"""The page of the wire protocol says what the code says, and a server converses as it shows."""

from __future__ import annotations

import ast
import asyncio
import enum
import json
import re
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from stepwell_queue import contract, errors, words
from stepwell_queue.contract import check
from stepwell_queue.tcp import protocol
from stepwell_queue.tcp.client import link
from stepwell_queue.tcp.server import connection, jobs, requests, server
from tests.docs.pages import ROOT, blocks
from tests.serving import serving

PAGE = ROOT / "docs" / "reference" / "protocol.md"
TEXT = PAGE.read_text("utf-8")
REQUESTS: tuple[Any, ...] = typing.get_args(protocol.Request)
STRUCTS: tuple[Any, ...] = (
    *typing.get_args(protocol.Event),
    protocol.Greeting,
    protocol.Welcome,
    protocol.Turned,
    protocol.Reply,
    protocol.Refusal,
    protocol.Jobs,
    contract.NewRun,
    contract.Terms,
    contract.QueueSettings,
    contract.RateLimit,
    contract.QueueRow,
    contract.RunCount,
    contract.EndCount,
    contract.NamedSettings,
    contract.EndedFilter,
    contract.EndedTree,
    contract.Keep,
    contract.NamedKeep,
    contract.Terminated,
    contract.PausedName,
    contract.Started,
    contract.Ended,
    contract.Claimed,
    contract.Record,
    contract.OpenOp,
    contract.InboxRow,
    contract.Hello,
    contract.Identity,
    contract.RunFilter,
    contract.RunInfo,
    contract.History,
    contract.FailedAttempt,
    contract.DeadLetterRow,
    contract.RunCopy,
    contract.AnswerCopy,
    contract.Aside,
    contract.LogLine,
    contract.LogRow,
    contract.ProgressRow,
    contract.Note,
    contract.Item,
    contract.RunState,
    contract.ValueRow,
    contract.AnswerRow,
    contract.ItemRow,
    contract.StreamRow,
    contract.EventPage,
    contract.RemoteStep,
    contract.AuditEntry,
    contract.AuditRow,
    contract.WorkerInfo,
    contract.Finding,
    contract.ScheduleRow,
    contract.TickRow,
    contract.DueSchedules,
)
LIMITS = {
    "greeting": f"{protocol.GREETING_LIMIT} bytes",
    "frame": f"{protocol.FRAME_LIMIT} bytes",
    "requests": f"{protocol.MOST_AT_ONCE} requests",
    "verb": f"{check.MAX_BYTES} bytes",
    "`StartMany`": f"{check.MAX_RUNS} runs",
    "page": f"{protocol.PAGE} bytes",
    "claim": f"{vars(jobs)['_AT_ONCE']} runs",
    "claim arguments": f"{jobs.AT_MOST} bytes",
    "listing": f"{vars(requests)['_LISTED_AT_ONCE']} rows",
    "waits": f"{requests.MAX_WATCHERS} waits",
    "large frame": f"{connection.LARGE} bytes",
}
TIMES = {
    "greeting": f"{connection.GREET_WITHIN:g} seconds",
    "within a frame": f"{connection.SILENT_IN_FRAME:g} seconds",
    "silence": f"{connection.SILENT:g} seconds",
    "unread": f"{connection.UNREAD:g} seconds",
}
REFUSED: list[Exception] = [
    errors.StoreUnavailable("message"),
    errors.StaleFence(1, 2),
    errors.IdConflict("id", "existing", "asked"),
    errors.RunNotFound("id"),
    errors.RunEnded("id", "status", "asked"),
    errors.ScheduleNotFound("id"),
    errors.QueueFull("queue", 3),
    errors.RequestRefused("message"),
    errors.MalformedRequest("message"),
    errors.StepwellError("message"),
    ValueError("message"),
    TypeError("message"),
]


def part(heading: str) -> str:
    """Return what stands under a heading, up to the next one."""
    pattern = rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)"
    found = re.search(pattern, TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {heading!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """Return the cells of the tables in a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    ruled = [at for at, row in enumerate(cells) if set(row[0]) == {"-"}]
    heads = {at - 1 for at in ruled} | set(ruled)
    return [row for at, row in enumerate(cells) if at not in heads]


def word(type: inspect.Type) -> str:
    """Return a type as the page writes it."""
    match type:
        case inspect.ListType() | inspect.CollectionType() | inspect.VarTupleType():
            return f"list of {word(type.item_type)}"
        case inspect.TupleType():
            return f"[{', '.join(map(word, type.item_types))}]"
        case inspect.DictType():
            return f"map of {word(type.key_type)} to {word(type.value_type)}"
        case inspect.UnionType():
            return " or ".join(map(word, type.types))
        case inspect.StructType():
            return type.cls.__name__
        case _:
            name = type.__class__.__name__.removesuffix("Type").lower()
            return {"bytes": "bin", "none": "nil", "raw": "any"}.get(name, name)


def field(one: inspect.Field) -> str:
    """Return the type of a field, and what is taken for it where it is missing."""
    default: Any = one.default
    if default is msgspec.NODEFAULT:
        if one.default_factory is msgspec.NODEFAULT:
            return word(one.type)
        default = one.default_factory()
    if default == b"":
        shown = "empty"
    elif default is None:
        shown = "nil"
    else:
        shown = json.dumps(default)
    return f"{word(one.type)} = {shown}"


def described(cls: type) -> inspect.StructType:
    found = inspect.type_info(cls)
    assert isinstance(found, inspect.StructType)
    return found


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_each_request_stands_in_its_table_with_tag_and_fields_in_order(cls: type) -> None:
    about = described(cls)
    [row] = [row for row in rows(TEXT) if len(row) == 4 and row[1] == f"`{cls.__name__}`"]
    fields = ", ".join(f"{one.name}: {field(one)}" for one in about.fields)
    assert row[0] == str(about.tag)
    assert row[2] == (f"`{fields}`" if fields else "")
    assert about.array_like


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_each_struct_has_a_table_with_its_fields_in_order(cls: type) -> None:
    about = described(cls)
    heading = f"`{cls.__name__}`"
    if about.tag is not None:
        heading += f", tag {about.tag}"
    if not about.array_like:
        heading += ", a map"
    found = [row[:2] for row in rows(part(heading))]
    assert found == [[f"`{one.name}`", field(one)] for one in about.fields]


def test_each_struct_that_is_named_has_a_table() -> None:
    named: set[type] = set()

    def gather(one: inspect.Type) -> None:
        if isinstance(one, inspect.StructType) and one.cls not in named:
            named.add(one.cls)
            for part in one.fields:
                gather(part.type)
        for inner in ("item_type", "key_type", "value_type"):
            if hasattr(one, inner):
                gather(getattr(one, inner))
        for inner in (*getattr(one, "types", ()), *getattr(one, "item_types", ())):
            gather(inner)

    for cls in (*REQUESTS, *STRUCTS):
        gather(described(cls))
    assert named == {*REQUESTS, *STRUCTS}


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_the_page_says_what_repeating_a_request_does(cls: type) -> None:
    names = {name for row in rows(part("Reconnecting")) for name in re.findall(r"`(\w+)`", row[0])}
    reads = {name for row in rows(part("Reads")) for name in re.findall(r"^`(\w+)`$", row[1])}
    assert cls.__name__ in names | reads


def test_the_limits_and_times_are_those_of_the_code() -> None:
    text = part("Frames")
    found = [(row[0], row[1]) for row in rows(text)]
    assert found == [*LIMITS.items(), *TIMES.items()]
    numbers = set(re.findall(r"\d{4,}", text))
    beside = (
        vars(requests)["_LISTED_BYTES"],
        vars(server)["_ROOM"],
        vars(connection)["_HIGH_WATER"],
    )
    assert {str(one) for one in beside} <= numbers


def test_the_times_of_the_server_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "explanation" / "server.md").read_text("utf-8")
    shown = [float(row[1]) for row in rows(text.partition("## The times")[2])]
    assert shown == [
        vars(link)["_FIRST_RETRY"],
        vars(link)["_LAST_RETRY"],
        vars(link)["_CONNECT_WITHIN"],
        vars(link)["_PING_EVERY"],
        connection.GREET_WITHIN,
        connection.SILENT_IN_FRAME,
        connection.SILENT,
        connection.UNREAD,
    ]


def test_the_words_are_those_of_the_code() -> None:
    kinds = [one for one in vars(words).values() if isinstance(one, enum.EnumMeta)]
    expected = {
        f"`{kind.__name__}`": ", ".join(f"{one.name} = {one.value}" for one in typed(kind))
        for kind in kinds
    }
    assert dict(rows(part("Words"))) == expected


def typed(kind: Any) -> list[enum.IntEnum]:
    return list(kind)


def test_the_errors_on_the_wire_are_those_of_the_page() -> None:
    said = [protocol.refusal(1, error) for error in REFUSED]
    shown = [(row[0], re.findall(r"`(\w+)`", row[1])) for row in rows(part("Errors"))]
    samples = {"run": 1, "fence": 2, "limit": 3}
    assert [(f"`{one.kind}`", list(one.args)) for one in said] == [
        (kind, [samples.get(name, name) for name in names]) for kind, names in shown
    ]
    assert [type(protocol.rebuilt(one)) for one in said] == [type(error) for error in REFUSED]
    of_the_store = {
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, errors.StepwellError)
    }
    assert {type(error) for error in REFUSED} >= of_the_store - {errors.StoreRefused}


# --- the conversations ---


def fits(shown: Any, said: Any) -> bool:
    """`...` stands for one value, and at the end of a list for the rest of it."""
    if shown is ...:
        return True
    if type(shown) is type(said) is list:
        if shown and shown[-1] is ...:
            shown, said = shown[:-1], said[: len(shown) - 1]
        return len(shown) == len(said) and all(map(fits, shown, said))
    if isinstance(shown, float):
        return isinstance(said, (int, float)) and shown == said
    return type(shown) is type(said) and shown == said


async def converse(port: int, lines: list[str], still_open: list[asyncio.StreamWriter]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    still_open.append(writer)
    for line in lines:
        who, _, text = line.partition(": ")
        value = ast.literal_eval(text)
        if who == "C":
            body = msgspec.msgpack.encode(value)
            writer.write(len(body).to_bytes(4, "big") + body)
        else:
            size = int.from_bytes(await reader.readexactly(4), "big")
            said = msgspec.msgpack.decode(await reader.readexactly(size))
            assert fits(value, said), f"the page shows\n{value}\nand the server says\n{said}"


def test_a_server_converses_as_the_page_shows(tmp_path: Path) -> None:
    shown = [block.text.splitlines() for block in blocks(PAGE) if block.language == "conversation"]

    async def play() -> None:
        still_open: list[asyncio.StreamWriter] = []
        async with asyncio.timeout(20), serving(tmp_path / "runs.db") as server:
            for lines in shown:
                await converse(server.address[1], lines, still_open)
        for writer in still_open:
            writer.close()

    assert len(shown) == 4
    asyncio.run(play())
