from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from stepwell.checking import Problem, check_module

Check = Callable[..., list[Problem]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Check `orders`, which has this text, beside the other modules that are given by name."""

    def checked(text: str, **others: str) -> list[Problem]:
        for name, source in {"orders": text, **others}.items():
            file = tmp_path / f"{name.replace('__', '/')}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(textwrap.dedent(source), "utf-8")
        return check_module("orders", [str(tmp_path), *sys.path])

    return checked
