"""Modules that a test makes, changes and takes away, as deploys do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from stepwell_runtime.codec import Codec

Deploy = Callable[..., ModuleType]


@pytest.fixture
def codec() -> Codec:
    return Codec()


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deploy]:
    """`deploy(name, source)` puts a module in place of the former one; source None removes it."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names: set[str] = set()

    def put(name: str, source: str | None) -> ModuleType:
        names.add(name)
        sys.modules.pop(name, None)
        file = tmp_path / f"{name}.py"
        if source is None:
            file.unlink()
            importlib.invalidate_caches()
            return ModuleType(name)
        file.write_text(PREAMBLE + source)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield put
    for name in names:
        sys.modules.pop(name, None)


PREAMBLE = """
import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple
import msgspec
from pydantic import BaseModel, Field, field_validator
"""
