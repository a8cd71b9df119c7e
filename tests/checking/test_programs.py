"""Whole programs: ours, and others' that have no workflows."""

from __future__ import annotations

import ast
import random
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.checking import CannotCheck, Problem, check_module, check_modules
from stepwell.checking.bodies import Bodies, body_of
from stepwell.checking.check_state import Changes
from stepwell.checking.checks import problems_of
from stepwell.checking.resolving import Resolver
from stepwell.checking.scopes import FUNCTION
from stepwell.checking.sources import Library, Source, parse
from tests.checking.conftest import Check
from tests.conftest import Scale
from tests.docs.pages import ROOT, blocks, pages

PATH = [str(ROOT), *sys.path]
OF_PYTHON = sorted(
    path
    for path in Path(sysconfig.get_path("stdlib")).rglob("*.py")
    if "site-packages" not in path.parts and path.stat().st_size < 100_000
)


def bodies(names: list[str], path: list[str]) -> int:
    library = Library(path)
    given = [source for name in names for source in library.given(name)]
    return sum(1 for _ in Bodies(Resolver(library)).of(given))


def test_nothing_is_found_in_the_examples() -> None:
    assert check_module("examples", PATH) == []
    assert bodies(["examples"], PATH) >= 4


def test_nothing_is_found_in_the_code_of_the_pages(tmp_path: Path) -> None:
    names: list[str] = []
    for page in pages():
        parts = [
            it.text for it in blocks(page) if it.language == "python" and "cell" not in it.words
        ]
        if page.parent.name != "reference" and page.name != "check-workflows.md":
            names.append(f"page_{len(names)}")
            (tmp_path / f"{names[-1]}.py").write_text("\n".join(parts), "utf-8")
    path = [str(tmp_path), *sys.path]
    assert [str(one) for one in check_modules(names, path)] == []
    assert bodies(names, path) >= 30


def functions(source: Source, resolver: Resolver) -> Iterator[list[Problem]]:
    """Check every function as if it were a workflow."""
    changes = Changes(resolver)
    for node in resolver.scopes(source).around:
        if isinstance(node, FUNCTION):
            yield list(problems_of(body_of(resolver, source, node, node.name), changes))


def test_any_python_is_checked_and_code_without_workflows_is_clean(scale: Scale) -> None:
    chosen = random.Random(5).sample(OF_PYTHON, min(len(OF_PYTHON), scale(25, 2_000)))
    looked_at = 0
    for file in chosen:
        try:
            source = parse("orders", file, file.read_bytes(), is_package=False, own=True)
        except CannotCheck:
            with pytest.raises((SyntaxError, ValueError)):
                ast.parse(file.read_bytes())
            continue
        resolver = Resolver(Library([]))
        assert list(Bodies(resolver).of([source])) == []
        looked_at += sum(1 for _ in functions(source, resolver))
    assert looked_at > 20


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x = " + "-" * 80 + "1",
        "x = " + " + ".join(["a"] * 900),
        "x = a" + ".b()" * 80,
        "a = b\nb = a\nx = a.c()",
        "class A(A): pass\nclass B(C): pass\nclass C(B): pass\nx = C().d()",
        "from orders import *\nfrom . import orders\nimport orders as orders\nx = orders.orders.y",
        "def f(x: 'f(x)', y: '(', *a: f, **k: f) -> 'f': return f(x)(y)\nx = f(f)()",
        "@x\n@x.y()\nasync def x(x=(x := 1)): global x",
        "match a:\n    case {'a': [*b], **c} | A(d=e) as f: x = f",
        "lambda: (yield)\nx = [*a for a in b] if 0 else (lambda *a: a)",
        "# -*- coding: latin-1 -*-\nx = '\u00e9'",
    ],
)
def test_odd_code_is_checked_like_any_other(text: str, check: Check) -> None:
    workflow = (
        "\nfrom stepwell import workflow\n@workflow\nasync def flow() -> None:\n"
        "    x, x(), x.y, x.y(), await x, await x()\n    async with x as y: x[y] = y\n"
    )
    try:
        ast.parse(text + workflow)
    except SyntaxError:
        with pytest.raises(CannotCheck, match=r"orders\.py:\d+ is no valid Python"):
            check(text + workflow)
    else:
        check(text + workflow)


def test_nothing_is_imported(check: Check) -> None:
    before = set(sys.modules)
    text = "from orders_helper import *\nimport orders_helper\nraise SystemExit('imported')"
    assert check(text, orders_helper="raise SystemExit('imported')") == []
    assert {name for name in set(sys.modules) - before if name.startswith("orders")} == set()


def test_a_package_that_is_installed_may_hold_steps_and_its_own_code_is_not_reported(
    tmp_path: Path,
) -> None:
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "company.py").write_text(
        "import stepwell, time, asyncio\n"
        "@stepwell.step\nasync def charge() -> None: await asyncio.sleep(1)\n"
        "async def charge_twice() -> None: time.time(); await charge()\n"
    )
    (site / "foreign.py").write_text("async def fetch() -> None: ...\n")
    (tmp_path / "orders.py").write_text(
        "import company, foreign, missing_here\nfrom stepwell import workflow\n"
        "@workflow\nasync def flow() -> None:\n    await company.charge()\n"
        "    await company.charge_twice()\n    await missing_here.charge()\n"
        "    company.charge()\n    await foreign.fetch()\n"
    )
    problems = check_module("orders", [str(tmp_path), str(site), *sys.path])
    assert [(one.line, one.rule) for one in problems] == [
        (8, "forgotten-call"),
        (9, "foreign-await"),
    ]


def test_a_module_that_is_not_there_or_is_no_source_is_refused() -> None:
    with pytest.raises(CannotCheck, match="no module 'no_such_module' in"):
        check_module("no_such_module")
    with pytest.raises(CannotCheck, match="'sys' is not there as source"):
        check_module("sys")
