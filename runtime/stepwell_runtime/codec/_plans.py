"""Per class: how its instances are taken apart and put together again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any

from stepwell_runtime.codec import _tags as tags
from stepwell_runtime.codec._refs import (
    find,
    is_importable,
    make_ref,
    plain_ref,
    type_name,
    type_of,
)
from stepwell_runtime.codec._write import Handler, Writer, finders, handlers
from stepwell_runtime.codec.errors import MissingClass, Refused, Unreadable

State = dict[str, Any]

# Attributes that are not data: they are made anew, or by typing.
_NOT_DATA = frozenset({"__orig_class__", "__weakref__", "__dict__"})


class Plan:
    """How one class is stored. `code` is its tag; subclasses know the kinds of classes."""

    code = tags.OBJECT
    # What may differ between equal instances.
    fields_not_compared: frozenset[str] = frozenset()
    state_not_compared: frozenset[str] = frozenset({"attrs"})

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.ref = make_ref(cls)
        self.digest_ref = plain_ref(self.ref)
        self.migrate: Callable[[dict[str, Any]], Any] | None = getattr(
            cls, "__stepwell_migrate__", None
        )

    def lower(self, writer: Writer, value: Any, depth: int) -> object:
        fields, state = self.take_apart(value)
        ref = self.ref
        if writer.canonical:
            ref = self.digest_ref
            fields, state = self._compared(fields, state)
        lowered = writer.fields(fields, depth)
        if not state:
            return writer.ext(self.code, [ref, lowered])
        return writer.ext(self.code, [ref, lowered, self._lower_state(writer, state, depth)])

    def _compared(self, fields: dict[str, Any], state: State) -> tuple[dict[str, Any], State]:
        if self.fields_not_compared:
            fields = {k: item for k, item in fields.items() if k not in self.fields_not_compared}
        return fields, {k: item for k, item in state.items() if k not in self.state_not_compared}

    def _lower_state(self, writer: Writer, state: State, depth: int) -> dict[str, Any]:
        lowered: dict[str, Any] = {}
        for key, value in state.items():
            kind = type_of(value)
            lowered[key] = writer.fields(value, depth) if kind is dict else value
        return lowered

    def build(self, fields: dict[str, Any], state: State, *, trusted: bool) -> Any:
        if self.migrate is not None:
            fields = self.migrate(fields)
            kind = type_of(fields)
            if kind is not dict:
                raise Unreadable("__stepwell_migrate__ must return the dict of fields", self.ref)
        if not trusted:
            state = self.check_state(state)
        return self.put_together(fields, state)

    def check_state(self, state: State) -> State:
        """What of the state data from outside may set: nothing that would replace a method."""
        for name in state.get("attrs", ()):
            if name.startswith("__") or callable(getattr(self.cls, name, None)):
                raise Unreadable(f"data from outside may not set {name!r}", self.ref)
        return state

    def take_apart(self, value: Any) -> tuple[dict[str, Any], State]:
        raise NotImplementedError

    def put_together(self, fields: dict[str, Any], state: State) -> Any:
        raise NotImplementedError

    def missing(self, name: str) -> Unreadable:
        return Unreadable(
            f"the stored data has no field {name!r}, which the class requires: give it a default, "
            "or add a classmethod __stepwell_migrate__(cls, data) that fills it in",
            self.ref,
        )


def extra_attributes(value: Any, known: frozenset[str]) -> dict[str, Any]:
    """What an instance carries besides its fields; cached properties are computed again instead."""
    own: dict[str, Any] | None = getattr(value, "__dict__", None)
    if not own or known.issuperset(own):
        return {}
    cls = type_of(value)
    return {
        name: item
        for name, item in own.items()
        if name not in known
        and name not in _NOT_DATA
        and not isinstance(getattr(cls, name, None), cached_property)
    }


def refuse_builtin_base(cls: type) -> None:
    for base in cls.__mro__[:-1]:
        if base.__module__ == "builtins":
            raise Refused(
                type_name(cls),
                f"it derives from {base.__name__}, whose content is not in its fields: hold the "
                f"{base.__name__} in a field",
            )


# Tried in order; each returns the plan of a class, or None: "not mine".
plan_makers: list[Callable[[type], Plan | None]] = []

_plans: dict[type, Plan] = {}
_current: dict[str, type] = {}


def make_plan(cls: type) -> Plan | None:
    """The plan of a class; None when it is not for data. Refused when it cannot be imported."""
    plan = _plans.get(cls)
    if plan is not None:
        return plan
    for maker in plan_makers:
        plan = maker(cls)
        if plan is not None:
            _forget(_current.get(plan.ref))
            _current[plan.ref] = cls
            _plans[cls] = plan
            return plan
    return None


def _forget(replaced: type | None) -> None:
    """A reloaded module must not be kept alive by what is known of its former classes."""
    if replaced is not None:
        _plans.pop(replaced, None)
        handlers.pop(replaced, None)


def is_data_class(cls: type) -> bool:
    try:
        return make_plan(cls) is not None
    except Refused:
        return False


def plan_or_unreadable(cls: type, ref: str) -> Plan:
    try:
        plan = make_plan(cls)
    except Refused as refused:
        raise MissingClass(refused.reason, ref) from refused
    if plan is None:
        raise MissingClass(f"{type_name(cls)} is not a class for data (any more)", ref)
    return plan


_found: dict[str, tuple[Plan, str, str]] = {}


def import_plan(ref: str) -> Plan:
    known = _found.get(ref)
    if known is not None:
        plan, module, name = known
        if getattr(sys.modules.get(module), name, None) is plan.cls:
            return plan
    cls = find(ref)
    plan = plan_or_unreadable(cls, ref)
    _found[ref] = (plan, cls.__module__, cls.__qualname__)
    return plan


def _find_handler(cls: type) -> Handler | None:
    plan = make_plan(cls)
    if plan is None:
        return None
    lower = plan.lower
    module, name = cls.__module__, cls.__qualname__
    modules = sys.modules

    def lower_current(writer: Writer, value: Any, depth: int) -> object:
        # A notebook cell or reload may have replaced the class since the plan was made.
        if getattr(modules.get(module), name, None) is not cls and not is_importable(cls):
            make_ref(cls)
        return lower(writer, value, depth)

    return lower_current


finders.append(_find_handler)
