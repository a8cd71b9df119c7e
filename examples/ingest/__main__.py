"""Indexes a folder of text and searches it."""

from __future__ import annotations

import argparse
import asyncio
import sys
import sysconfig
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from examples.ingest.index import Index
from examples.ingest.workflow import Report, index, ingest
from stepwell import Stepwell

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
FILES = Path(__file__).resolve().parents[2] / "build" / "ingest"


async def index_folder(folder: Path, files: Path, console: Console) -> Report:
    """Index the folder; go on with a run that was interrupted, else begin a new one."""
    with closing(Index(files / "index.db")) as opened:

        @asynccontextmanager
        async def lifespan(app: Stepwell) -> AsyncGenerator[None, None]:
            token = index.set(opened)
            try:
                yield
            finally:
                index.reset(token)

        async with Stepwell(files / "runs.db", lifespan=lifespan) as app:
            id = await unfinished(app, folder)
            if id is None:
                id = f"{folder} at {datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"
            else:
                console.print(f"going on with {opened.count()} files indexed before")
            showing = asyncio.create_task(show(opened, console))
            try:
                return await app.run(ingest(folder), id=id)
            finally:
                showing.cancel()


async def unfinished(app: Stepwell, folder: Path) -> str | None:
    for run in await app.runs(name="ingest"):
        if run.id.startswith(f"{folder} at ") and not run.ended:
            return run.id
    return None


async def show(opened: Index, console: Console) -> None:
    with console.status("indexing") as status:
        while True:
            count = await asyncio.to_thread(opened.count)
            status.update(f"{count} files indexed")
            await asyncio.sleep(0.2)


def search(words: str, files: Path, limit: int, console: Console) -> int:
    with closing(Index(files / "index.db")) as opened:
        hits = opened.search(words, limit)
    for hit in hits:
        console.print(f"[bold]{hit.path}[/]", soft_wrap=True)
        console.print(f"  {hit.title}", markup=False, highlight=False, soft_wrap=True)
        excerpt = " ".join(hit.excerpt.split())
        console.print(f"  {excerpt}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"{len(hits)} places" if hits else f"nothing has {words!r}")
    return 0 if hits else 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("examples.ingest", description=__doc__)
    parser.add_argument("--dir", type=Path, default=FILES, help="where runs and index are kept")
    commands = parser.add_subparsers(dest="command", required=True)
    indexing = commands.add_parser("index", help="index a folder; run again to go on, or to update")
    indexing.add_argument("folder", type=Path, nargs="?", default=LIBRARY)
    searching = commands.add_parser("search", help="find words in what is indexed")
    searching.add_argument("words")
    searching.add_argument("--limit", type=int, default=10)
    given = parser.parse_args(arguments)
    given.dir.mkdir(parents=True, exist_ok=True)
    console = Console()
    if given.command == "search":
        return search(given.words, given.dir, given.limit, console)
    report = asyncio.run(index_folder(given.folder.resolve(), given.dir, console))
    console.print(f"{report.files} files, {report.changed} of them new or changed")
    for name in report.unreadable:
        console.print(f"not readable: {name}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
