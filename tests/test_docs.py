"""The reference documents every public name, every setting, and its default."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepwell

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
API = (REFERENCE / "api.md").read_text("utf-8")
ERRORS = (REFERENCE / "errors.md").read_text("utf-8")
ROW = re.compile(r"^\| `(\w+)` \| (\S.*?) \|", re.MULTILINE)

CONFIGURED: dict[str, Callable[..., Any]] = {
    "workflow": stepwell.workflow,
    "step": stepwell.step,
    "task": stepwell.task,
    "schedule": stepwell.schedule,
    "Retry": stepwell.Retry,
    "Queue": stepwell.Queue,
    "Rate": stepwell.Rate,
    "parallel": stepwell.parallel,
    "Stepwell": stepwell.Stepwell,
    "Worker": stepwell.Stepwell.worker,
    "Access": stepwell.Access,
    "Retention": stepwell.Retention,
    "run": stepwell.run,
}
SAME_SETTINGS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "BlockingStepwell": (stepwell.BlockingStepwell, stepwell.Stepwell),
    "BlockingStepwell.worker": (stepwell.BlockingStepwell.worker, stepwell.Stepwell.worker),
}
NOT_SETTINGS = ("self", "fn", "call", "calls")


def section(name: str) -> str:
    """Return the part of the reference under the heading that names `name`."""
    for part in re.split(r"^### ", API, flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        if f"`{name}`" in heading:
            return text
    return ""


def settings(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters
    return {name: one for name, one in parameters.items() if name not in NOT_SETTINGS}


def shown_default(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return "required"
    if parameter.default == (Exception,):
        return "`(Exception,)`"
    return f"`{parameter.default!r}`"


@pytest.mark.parametrize("name", stepwell.__all__)
def test_every_public_name_has_an_entry(name: str) -> None:
    value = getattr(stepwell, name)
    if isinstance(value, type) and issubclass(value, BaseException) and not section(name):
        assert f"`{name}`" in ERRORS
    else:
        assert section(name)


@pytest.mark.parametrize("name", CONFIGURED)
def test_every_setting_is_documented_with_its_default(name: str) -> None:
    documented = dict(ROW.findall(section(name)))
    documented.pop("definitions", None)
    documented.pop("blocking", None)
    expected = {key: shown_default(one) for key, one in settings(CONFIGURED[name]).items()}
    assert documented == expected


@pytest.mark.parametrize("name", SAME_SETTINGS)
def test_the_blocking_twin_takes_the_same_settings(name: str) -> None:
    blocking, original = SAME_SETTINGS[name]
    assert {k: p.default for k, p in settings(blocking).items()} == {
        k: p.default for k, p in settings(original).items()
    }


def public_methods(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def test_every_method_of_the_app_is_documented() -> None:
    hidden = {"codec", "engine", "opened", "send"}
    text = section("Stepwell")
    missing = [
        name
        for name in public_methods(stepwell.Stepwell) - hidden
        if f"`{name}" not in text and f"({name}" not in text
    ]
    assert missing == []


def test_the_blocking_app_has_the_methods_of_the_app() -> None:
    only_async = {"blocking", "codec", "definitions", "engine", "opened"}
    hidden = {"send"}
    expected = public_methods(stepwell.Stepwell) - only_async - hidden
    assert expected <= public_methods(stepwell.BlockingStepwell)
    assert public_methods(stepwell.Run) - {"result_type"} <= public_methods(stepwell.BlockingRun)
    assert public_methods(stepwell.Schedule) == public_methods(stepwell.BlockingSchedule)


@pytest.mark.parametrize("name", stepwell.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    value = getattr(stepwell, name)
    if name == "RunStatus":
        return
    assert value.__doc__
    if not isinstance(value, type):
        return
    for method in public_methods(value):
        member = inspect.getattr_static(value, method)
        if isinstance(member, property) or inspect.isfunction(member):
            documented = member.__doc__ or getattr(value, "_is_protocol", False)
            assert documented or issubclass(value, BaseException), f"{name}.{method}"
