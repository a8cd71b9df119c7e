"""Indexing a folder: list it, read and parse every file, a bounded number at a time."""

from __future__ import annotations

import ast
import hashlib
import threading
import warnings
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from examples.ingest.index import Index, Text
from stepwell import parallel, step, workflow

SUFFIXES = frozenset((".py", ".pyi", ".md", ".rst", ".txt"))
FOREIGN = frozenset(("site-packages", "__pycache__", ".git", ".venv", "node_modules"))
BATCH = 50

# CPython 3.11 counts the recursion of ast.parse for all threads together, and trips over it.
parsing = threading.Lock()
index: ContextVar[Index] = ContextVar("index")


@dataclass(frozen=True)
class Report:
    files: int
    changed: int
    unreadable: list[str]


class Unreadable(Exception):
    pass


@workflow
async def ingest(folder: Path) -> Report:
    """Index every text below the folder: a child run for each batch, four batches at once."""
    paths = await list_files(folder)
    batches = [paths[start : start + BATCH] for start in range(0, len(paths), BATCH)]
    reports = await parallel(*(ingest_batch(batch) for batch in batches), limit=4)
    await forget_missing(folder, paths)
    return Report(
        files=len(paths),
        changed=sum(report.changed for report in reports),
        unreadable=[name for report in reports for name in report.unreadable],
    )


@workflow
async def ingest_batch(paths: list[Path]) -> Report:
    calls = [index_file(path) for path in paths]
    outcomes = await parallel(*calls, limit=4, return_exceptions=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    return Report(
        files=len(paths),
        changed=sum(outcome is True for outcome in outcomes),
        unreadable=[str(failure) for failure in failures],
    )


@step
def list_files(folder: Path) -> list[Path]:
    """These are plain functions, so each runs in a thread and may block."""
    found = (path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    return sorted(path for path in found if FOREIGN.isdisjoint(path.relative_to(folder).parts))


@step
def index_file(path: Path) -> bool:
    """Index one file, and say whether it is new or changed.

    Should the process be killed between the index's commit and the journal's, this is executed
    again, and finds the file indexed already.
    """
    try:
        content = path.read_bytes()
        body = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path}: {error}") from error
    digest = hashlib.sha256(content).hexdigest()
    if index.get().has(path, digest):
        return False
    title, names = parse(path, body)
    index.get().put(Text(path, digest, title, names, body))
    return True


@step
def forget_missing(folder: Path, paths: list[Path]) -> None:
    """Drop what was indexed before and is gone."""
    there = {str(path) for path in paths}
    below = f"{folder}/"
    known = index.get().paths()
    index.get().forget(path for path in known if path.startswith(below) and path not in there)


def parse(path: Path, body: str) -> tuple[str, str]:
    """Return a title, and the names that the file defines."""
    if path.suffix in (".py", ".pyi"):
        try:
            with parsing, warnings.catch_warnings(action="ignore"):
                module = ast.parse(body)
        except (SyntaxError, ValueError):
            return path.name, ""
        return first_line(ast.get_docstring(module) or path.name), " ".join(defined(module))
    return first_line(body), ""


def defined(module: ast.Module) -> list[str]:
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node.name for node in ast.walk(module) if isinstance(node, definitions)]


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:200]
