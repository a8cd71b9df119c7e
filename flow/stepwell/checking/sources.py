"""Modules as files on disk: found without importing them, so neither they nor services must run."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import io
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_FOREIGN: Final = frozenset(("site-packages", "dist-packages"))


class CannotCheck(Exception):
    """A module is not there, is no source, or is no Python; the message says which."""


@dataclass(eq=False, slots=True)
class Source:
    """One module. `own`: it belongs to who checks, so what is found in it is reported."""

    name: str
    path: Path
    tree: ast.Module
    text: str
    is_package: bool
    own: bool
    comments: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def package(self) -> str:
        return self.name if self.is_package else self.name.rpartition(".")[0]


def parse(name: str, path: Path, data: bytes, *, is_package: bool, own: bool) -> Source:
    """Raises CannotCheck."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = io.TextIOWrapper(io.BytesIO(data), encoding, newline=None).read()
        tree = ast.parse(data, str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError, LookupError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise CannotCheck(f"{path}{line} is no valid Python: {error}") from None
    comments = dict(_comments(text)) if "stepwell:" in text else {}
    return Source(name, path, tree, text, is_package, own, comments)


def _comments(text: str) -> Iterator[tuple[int, str]]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError):  # it has been parsed, so this is at its very end
        return


class Library:
    """All modules that have been looked at. `path`: where they are looked for; None = sys.path."""

    def __init__(self, path: Sequence[str] | None = None) -> None:
        self._path = None if path is None else list(path)
        self._known: dict[str, Source | None] = {}
        self._roots: set[Path] = set()

    def given(self, name: str) -> list[Source]:
        """Return a module, and if it is a package all modules in it. Raises CannotCheck."""
        spec = self._find(name)
        if spec is None:
            raise CannotCheck(
                f"no module {name!r} in {Path.cwd()} or on Python's path: check its name, and the "
                "folder where you are"
            )
        file = _file_of(spec)
        folders = spec.submodule_search_locations
        if file is not None:
            self._roots.add(_root_of(name, file, folders is not None))
        elif folders is None:
            raise CannotCheck(f"{name!r} is not there as source: {spec.origin or 'built in'}")
        found = [] if file is None else [self._read(name, file, folders is not None)]
        for folder in folders or ():
            self._roots.add(Path(folder).parents[name.count(".")].resolve())
            found += self._inside(name, Path(folder))
        return found

    def _inside(self, package: str, folder: Path) -> Iterator[Source]:
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            names = parts[:-1] if is_package else parts
            if names and all(name.isidentifier() for name in names):
                yield self._read(".".join((package, *names)), file, is_package)

    def _read(self, name: str, file: Path, is_package: bool) -> Source:
        known = self._known.get(name)
        if known is None or not known.own:
            try:
                data = file.read_bytes()
            except OSError as error:
                raise CannotCheck(f"{file} cannot be read: {error.strerror}") from None
            known = parse(name, file, data, is_package=is_package, own=True)
            self._known[name] = known
        return known

    def source(self, name: str) -> Source | None:
        """Return a module that code refers to; None if what is in it cannot matter."""
        if name not in self._known:
            self._known[name] = self._look_up(name)
        return self._known[name]

    def own(self) -> list[Source]:
        return [one for one in self._known.values() if one is not None and one.own]

    def is_there(self, name: str) -> bool:
        """Whether the package that a dotted name begins with is of Python or installed here."""
        top = name.partition(".")[0]
        return top in sys.stdlib_module_names or self._find(top) is not None

    def _look_up(self, name: str) -> Source | None:
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top.startswith("stepwell"):
            return None
        spec = self._find(name)
        file = None if spec is None else _file_of(spec)
        if spec is None or file is None:
            return None
        is_package = spec.submodule_search_locations is not None
        own = _root_of(name, file, is_package) in self._roots and not _FOREIGN & set(file.parts)
        try:
            data = file.read_bytes()
            # Of others' code only definitions matter: whether something is a step.
            if own or b"stepwell" in data:
                return parse(name, file, data, is_package=is_package, own=own)
        except (CannotCheck, OSError):  # it is not what was asked about
            pass
        return None

    def _find(self, name: str) -> importlib.machinery.ModuleSpec | None:
        """Find a module as an import would, but without importing its packages."""
        path, found = self._path, None
        for part in name.split("."):
            try:
                # By its last name: a folder without __init__.py asks for its parent, imported.
                found = importlib.machinery.PathFinder.find_spec(part, path)
                if found is None and path is None:
                    found = importlib.util.find_spec(part)  # an editable install has its own finder
            except (ImportError, ValueError, AttributeError):
                return None
            if found is None:
                return None
            path = list(found.submodule_search_locations or ())
        return found


def _file_of(spec: importlib.machinery.ModuleSpec) -> Path | None:
    if spec.origin is None or not spec.has_location or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)


def _root_of(name: str, file: Path, is_package: bool) -> Path:
    """Return the folder from which the module is imported."""
    return file.parents[min(name.count(".") + is_package, len(file.parents) - 1)].resolve()
