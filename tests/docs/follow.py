"""Follows a page as its reader would: `python -m tests.docs.follow PAGE`, in an empty folder.

```python           is executed; the blocks of a page share one module
```python shop.py   is a file that the reader saves
```python cell      is a cell of a notebook: it may await
```python flask     is executed if that package is there, and compiled if it is not
```output           is what the block before it prints; `…` stands for anything
```console          is typed into one shell; answers that are shown are compared

The port of a server is taken for one that is free.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import importlib.util
import inspect
import io
import os
import re
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Generator
from pathlib import Path

from tests.docs.pages import Block, blocks

PORT = "7878"
OPTIONAL = ("django", "fastapi", "flask")
END = "\x1eend of the answer"


class Shell:
    """One bash for all commands of a page."""

    def __init__(self) -> None:
        self._bash = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def answer(self, command: str) -> str:
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{command}\necho; echo '{END}'\n")
        self._bash.stdin.flush()
        lines = list(iter(self._bash.stdout.readline, f"{END}\n"))
        return "".join(lines)[:-1]

    def close(self) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)  # with what a failed page left behind
        self._bash.communicate()


class Reader:
    """Does what a page says."""

    def __init__(self) -> None:
        self.module = types.ModuleType("page")
        sys.modules["page"] = self.module
        self.printed = ""
        self._shell: Shell | None = None
        self._runner = asyncio.Runner()

    def follow(self, block: Block) -> None:
        if block.language == "python":
            self._python(block)
        elif block.language == "output":
            compare(block, block.text, self.printed)
        elif block.language == "console":
            self._console(block)

    def _python(self, block: Block) -> None:
        source = "\n" * (block.line - 1) + block.text
        files = [word for word in block.words if word.endswith(".py")]
        missing = [
            word for word in block.words if word in OPTIONAL and not importlib.util.find_spec(word)
        ]
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if "cell" in block.words else 0
        code = compile(source, str(block.page), "exec", flags=flags)
        if files:
            Path(files[0]).write_text(block.text, "utf-8")
            importlib.invalidate_caches()
        elif not missing:
            with self._printing():
                if code.co_flags & inspect.CO_COROUTINE:
                    self._runner.run(as_cell(code, self.module))
                else:
                    exec(code, self.module.__dict__)

    @contextlib.contextmanager
    def _printing(self) -> Generator[None]:
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                yield
        finally:
            self.printed = printed.getvalue()

    def _console(self, block: Block) -> None:
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            if self._shell is None:
                self._shell = Shell()
            command, _, expected = part.partition("\n")
            answer = self._shell.answer(command)
            if expected.strip():
                compare(block, expected, answer)

    def close(self) -> None:
        self._runner.close()
        if self._shell is not None:
            self._shell.close()


async def as_cell(code: types.CodeType, module: types.ModuleType) -> None:
    await eval(code, module.__dict__)


def compare(block: Block, expected: str, printed: str) -> None:
    """Compare line by line, without regard to spaces at the end; `…` stands for anything."""
    wanted = "\n".join(line.rstrip() for line in expected.strip().splitlines())
    got = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    pattern = re.escape(wanted).replace("…", ".*?")
    if re.fullmatch(pattern, got, re.DOTALL) is None:
        raise AssertionError(
            f"{block.page}:{block.line} says that this is printed:\n{wanted}\n\nbut this is:\n{got}"
        )


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return str(taken.getsockname()[1])


def main(page: Path) -> None:
    reader, port = Reader(), free_port()
    try:
        for block in blocks(page):
            reader.follow(dataclasses.replace(block, text=block.text.replace(PORT, port)))
    finally:
        reader.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
