"""Each rule is documented with code that breaks it and code that does not, and that is so."""

from __future__ import annotations

import re

import pytest

from stepwell.checking import RULES
from tests.checking.conftest import Check
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/reference/check.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## `([\w-]+)`\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def example(rule: str, kind: str) -> str:
    [found] = re.findall(
        rf"^```python {kind}\n(.*?)^```$", SECTIONS[rule], re.MULTILINE | re.DOTALL
    )
    return str(found)


def test_every_rule_is_documented_and_no_other() -> None:
    assert list(SECTIONS) == list(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_the_bad_example_breaks_the_rule_and_no_other(rule: str, check: Check) -> None:
    assert {one.rule for one in check(example(rule, "bad"))} == {rule}


@pytest.mark.parametrize("rule", RULES)
def test_the_good_example_breaks_none(rule: str, check: Check) -> None:
    assert check(example(rule, "good")) == []
