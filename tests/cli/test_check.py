"""`stepwell check`: what it prints, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.test_reference import keys

CLOCK = (
    "import time\nfrom stepwell import workflow\n\n"
    "@workflow\nasync def flow() -> float:\n    return time.time()\n"
)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "checked_shop.py"


def test_each_place_is_a_line_and_the_exit_code_is_1(cli: Cli, shop: Path) -> None:
    shop.write_text(CLOCK)
    answer = cli("check", "checked_shop")
    assert answer.code == 1
    assert answer.stdout == (
        "checked_shop.py:6:12: clock: time.time() reads the clock, which says something else when "
        "the run is replayed; use stepwell.now()\n"
    )
    assert "1 found, in 1 file" in answer.stderr


def test_clean_modules_exit_with_0(cli: Cli, shop: Path) -> None:
    shop.write_text("raise SystemExit('it is not imported')")
    (shop.parent / "checked_stock.py").write_text("")
    answer = cli("check", "checked_shop", "checked_stock")
    assert (answer.code, answer.stdout) == (0, "")
    assert "nothing found" in answer.stderr


def test_the_keys_of_a_problem_are_listed(cli: Cli, shop: Path) -> None:
    shop.write_text(CLOCK)
    answer = cli("check", "checked_shop", "--json")
    assert answer.code == 1
    [problem] = json.loads(answer.stdout)
    assert set(problem) == keys("A problem")


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("checked_nowhere", "no module 'checked_nowhere' in"),
        ("checked_shop.py", "is a file: give the module's name"),
        ("checked_shop:app", "leave out the colon"),
        ("checked_shop", "checked_shop.py:1 is no valid Python"),
    ],
)
def test_what_cannot_be_checked_exits_with_2(cli: Cli, shop: Path, module: str, said: str) -> None:
    shop.write_text("def def")
    answer = cli("check", module)
    assert answer.code == 2
    assert said in answer.stderr
