"""A run as a readable page: what it is, its journal, and what is open."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from stepwell.cli import _print as out
from stepwell.cli._shapes import RESTING, Shape

_WORDS = {
    "wait": "signal",
    "ask": "question",
    "retry": "retry of step",
    "remote": "step on its queue:",
    "roll_back": "roll back",
    "started": "started child",
}


def tell(run: Shape, full: bool) -> None:
    out.put(facts(run, full))
    longest = None if full else out.SHORT
    tell_failures(run["failures"], longest)
    tell_journal(run["journal"], longest)
    tell_rest(run, longest)
    if full:
        tell_tracebacks(run)


def tell_tracebacks(run: Shape) -> None:
    for one in run["failures"]:
        if one["failure"] is not None and one["failure"] != run["failure"]:
            what = f"Step at {one['path']}, attempt" if one["path"] else "Attempt"
            out.put(
                Text("\n".join(["", f"{what} {one['number']}:", *traceback_lines(one["failure"])]))
            )
    if run["failure"] is not None:
        out.put("")
        out.put(Text("\n".join(traceback_lines(run["failure"]))))


def facts(run: Shape, full: bool) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    longest = None if full else 10 * out.SHORT
    for label, value in (
        (run["kind"], f"{run['name']} v{run['version']}"),
        ("id", run["id"]),
        ("status", standing(run)),
        ("waits for", run["waiting"] if run["status"] in RESTING else ""),
        ("reason" if run["status"] == "cancelled" else "error", run["error"] or ""),
        ("result", out.compact(run["result"], longest) if run["status"] == "completed" else ""),
        ("arguments", arguments(run["arguments"], longest)),
        ("queue", run["queue"] + (f", priority {run['priority']}" if run["priority"] else "")),
        ("code", run["code"] or ""),
        ("generation", str(run["generation"] or "")),
        ("parent", " at ".join(filter(None, (run["parent_id"], run["parent_path"])))),
        ("created", when(run["created_at"])),
        ("started", when(run["started_at"])),
        ("ended", when(run["ended_at"])),
        ("took", took(run["started_at"], run["ended_at"])),
        ("due", when(run["due_at"])),
        ("deadline", when(run["deadline_at"])),
        ("failures", str(run["attempts"] or "")),
        ("crashes", str(run["crashes"] or "")),
        ("progress", progress(run["progress"])),
        *((f"value {name}", out.compact(one, longest)) for name, one in run["values"].items()),
        ("held by", "" if run["worker"] is None else f"worker {run['worker']}"),
    ):
        if value:
            text = value if isinstance(value, Text) else Text(out.one_line(value, longest))
            grid.add_row(label, text)
    return grid


def progress(shape: Shape | None) -> str:
    if shape is None:
        return ""
    note = f", {shape['note']}" if shape["note"] else ""
    return f"{shape['fraction']:.0%}{note} (at {when(shape['at'])})"


def standing(run: Shape) -> Text:
    text = out.status(run["status"])
    if run["rollback"] != "none":
        text.append(f", rollback {run['rollback']}")
    if not run["has_code"] and run["ended_at"] is None:
        text.append(", no live worker has its code")
    return text


def arguments(given: Shape, longest: int | None) -> str:
    parts = [out.compact(value, longest) for value in given["positional"]]
    parts += [f"{name}={out.compact(value, longest)}" for name, value in given["named"].items()]
    return ", ".join(parts)


def tell_failures(failures: list[Shape], longest: int | None) -> None:
    rows = [
        (
            str(one["number"]),
            one["path"],
            when(one["started_at"]),
            took(one["started_at"], one["ended_at"]),
            one["worker"],
            why(one, longest),
        )
        for one in failures
    ]
    show("Failed attempts", ("attempt", "path", "at", "took", "worker", "error"), rows)


def why(one: Shape, longest: int | None) -> str:
    if one["crashed"]:
        return "its worker died"
    if one["failure"] is None:
        return "too large to be kept"
    return out.one_line(failure_line(one["failure"]), longest)


def tell_journal(journal: list[Shape], longest: int | None) -> None:
    rows = [
        (
            str(one["seq"]),
            when(one["at"]),
            one["path"],
            what(one),
            str(one["attempt"]) if one["kind"] == "step" else "",
            took(one["started_at"], one["at"]),
            outcome(one),
            said(one, longest),
        )
        for one in journal
    ]
    columns = ("#", "at", "path", "what", "attempt", "took", "outcome", "value")
    show("Journal", columns, rows)


def what(one: Shape) -> str:
    undo = "undo: " if one["undo"] else ""
    word = _WORDS.get(one["kind"], str(one["kind"]))
    # These are of the run as a whole: their name says no more than the kind does.
    own = one["kind"] in ("failure", "reopen", "roll_back") or one["name"] == one["kind"]
    return undo + (word if own or not one["name"] else f"{word} {one['name']}")


def outcome(one: Shape) -> Text:
    if one["voided"]:
        return Text(f"{one['outcome']}, set aside", "dim")
    return out.status(one["outcome"])


def said(one: Shape, longest: int | None) -> str:
    if one["failure"] is not None:
        return out.one_line(failure_line(one["failure"]), longest)
    if one["kind"] == "reopen":
        aside = f", sets aside {', '.join(map(str, one['value']))}" if one["value"] else ""
        return str(one["name"]).replace("_", " ") + aside
    if one["value"] is None and not (one["kind"] in ("step", "child") and one["outcome"] == "ok"):
        return ""
    return out.compact(one["value"], longest)


def tell_rest(run: Shape, longest: int | None) -> None:
    open_rows = [
        (
            one["path"],
            what(one),
            when(one["due_at"]),
            str(one["failures"] or ""),
            one["run_id"]
            or (
                ""
                if one["failure"] is None
                else out.one_line(failure_line(one["failure"]), longest)
            ),
        )
        for one in run["open"]
    ]
    show("Open operations", ("path", "what", "due", "failures", ""), open_rows)
    unread = [
        (
            one["kind"].replace("_", " "),
            one["name"],
            when(one["at"]),
            "" if one["value"] is None else out.compact(one["value"], longest),
        )
        for one in run["unread"]
    ]
    show("Sent to it and not taken", ("kind", "name", "sent", "value"), unread)
    children = [
        (one["parent_path"] or "", one["id"], one["name"], out.status(one["status"]))
        for one in run["children"]
    ]
    show("Children", ("path", "id", "name", "status"), children)
    audit = [
        (
            when(one["at"]),
            one["action"].replace("_", " "),
            one["actor"],
            out.one_line(one["reason"]),
        )
        for one in run["audit"]
    ]
    show("Asked by operators", ("at", "action", "actor", "reason"), audit)


def show(title: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    if rows:
        out.put("")
        out.put_table(title, columns, rows)


def failure_line(failure: Shape) -> str:
    return f"{failure['type']}: {failure['message']}" if failure["message"] else failure["type"]


def traceback_lines(failure: Shape) -> list[str]:
    lines: list[str] = []
    if failure["cause"] is not None:
        lines += traceback_lines(failure["cause"])
        lines += ["", "which led to:", ""]
    lines.append("Traceback, outermost call first:")
    lines += [
        f"  {frame['file']}:{frame['line']}, in {frame['function']}" for frame in failure["frames"]
    ]
    lines.append(failure_line(failure))
    lines += failure["notes"]
    for number, member in enumerate(failure["members"], 1):
        lines.append(f"  member {number}: {failure_line(member)}")
    return lines


def moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def when(text: str | None) -> str:
    return out.when(moment(text))


def took(begin: str | None, end: str | None) -> str:
    return out.between(moment(begin), moment(end))
