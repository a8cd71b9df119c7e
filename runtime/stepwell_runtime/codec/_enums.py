"""Enum members: stored by name and value, found by name first."""

from __future__ import annotations

import enum
from typing import Any

from stepwell_runtime.codec import _tags as tags
from stepwell_runtime.codec._plans import Plan, State, plan_makers
from stepwell_runtime.codec._refs import type_name
from stepwell_runtime.codec._write import Writer
from stepwell_runtime.codec.errors import Refused, Unreadable


class EnumPlan(Plan):
    code = tags.ENUM

    def __init__(self, cls: type[enum.Enum]) -> None:
        super().__init__(cls)
        self._enum = cls

    def lower(self, writer: Writer, value: Any, depth: int) -> object:
        ref = self.digest_ref if writer.canonical else self.ref
        name, plain = value._name_, value._value_
        if self._enum.__members__.get(name) is not value:
            name = None
        # A value of another type is looked up by name only.
        if type(plain) is int or type(plain) is str:
            plain = writer.lower(plain, depth)
        elif name is None:
            raise Refused(type_name(self.cls), f"{value!r} is not a member that can be found again")
        else:
            plain = None
        return writer.ext(self.code, [ref, {"name": name, "value": plain}])

    def put_together(self, fields: dict[str, Any], state: State) -> Any:
        name, value = fields.get("name"), fields.get("value")
        member = self._enum.__members__.get(name) if isinstance(name, str) else None
        if member is not None:
            return member
        if value is None:
            raise Unreadable(f"it has no member {name!r} any more", self.ref)
        try:
            return self._enum(value)
        except ValueError as error:
            raise Unreadable(
                f"it has no member {name!r}, nor one of value {value!r}", self.ref
            ) from error


def _plan(cls: type) -> Plan | None:
    return EnumPlan(cls) if issubclass(cls, enum.Enum) else None


plan_makers.insert(0, _plan)
