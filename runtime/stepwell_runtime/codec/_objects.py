"""Dataclasses, named tuples and msgspec Structs."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from stepwell_runtime.codec._plans import (
    Plan,
    State,
    extra_attributes,
    plan_makers,
    refuse_builtin_base,
)
from stepwell_runtime.codec._refs import type_name, type_of
from stepwell_runtime.codec.errors import Refused

_MISSING = dataclasses.MISSING
_set = object.__setattr__
_new: Callable[[type], Any] = object.__new__
_new_tuple: Callable[[type, list[Any]], Any] = tuple[Any, ...].__new__


class DataclassPlan(Plan):
    """Built without `__init__` and `__post_init__`: the fields are what those made of them."""

    def __init__(self, cls: type[Any]) -> None:
        super().__init__(cls)
        refuse_builtin_base(cls)
        _refuse_own_layout(cls)
        self._fields = dataclasses.fields(cls)
        self._order = tuple(field.name for field in self._fields)
        self._names = frozenset(self._order)
        self.fields_not_compared = frozenset(f.name for f in self._fields if not f.compare)
        self._slots = tuple(name for name in _slots(cls) if name not in self._names)
        self._may_be_unset = frozenset(
            field.name for field in self._fields if not field.init and not _has_default(field)
        )
        # Instances keep all fields in their `__dict__`, so it can be read and filled as a whole.
        self._direct = cls.__dictoffset__ != 0 and not any(
            _is_data_descriptor(cls, name) for name in self._order
        )

    def take_apart(self, value: Any) -> tuple[dict[str, Any], State]:
        if self._direct:
            own: dict[str, Any] = value.__dict__
            if own.keys() == self._names and not self._slots:
                return own, {}
        try:
            fields = {name: getattr(value, name) for name in self._order}
        except AttributeError:
            fields = dict(self._set_fields(value))
        attrs = extra_attributes(value, self._names)
        for name in self._slots:
            if hasattr(value, name):
                attrs[name] = getattr(value, name)
        return fields, {"attrs": attrs} if attrs else {}

    def _set_fields(self, value: Any) -> Iterator[tuple[str, Any]]:
        for name in self._order:
            if hasattr(value, name):
                yield name, getattr(value, name)
            elif name not in self._may_be_unset:
                raise Refused(type_name(self.cls), f"its field {name!r} is not set: set it")

    def put_together(self, fields: dict[str, Any], state: State) -> Any:
        if fields.keys() != self._names:
            fields = self._complete(fields)
        value = _new(self.cls)
        if self._direct:
            value.__dict__.update(fields)
        else:
            for name, item in fields.items():
                _set(value, name, item)
        if state:
            for name, item in state.get("attrs", {}).items():
                _set(value, name, item)
        return value

    def _complete(self, fields: dict[str, Any]) -> dict[str, Any]:
        complete: dict[str, Any] = {}
        for field in self._fields:
            if field.name in fields:
                complete[field.name] = fields[field.name]
            elif field.default is not _MISSING:
                complete[field.name] = field.default
            elif field.default_factory is not _MISSING:
                complete[field.name] = field.default_factory()
            elif field.name not in self._may_be_unset:
                raise self.missing(field.name)
        return complete


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not _MISSING or field.default_factory is not _MISSING


def _refuse_own_layout(cls: type) -> None:
    try:
        object.__new__(cls)
    except TypeError as error:
        raise Refused(
            type_name(cls), f"it cannot be built without its own __new__ ({error})"
        ) from error


def _slots(cls: type) -> Iterator[str]:
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if name in ("__dict__", "__weakref__"):
                continue
            private = name.startswith("__") and not name.endswith("__")
            yield f"_{base.__name__.lstrip('_')}{name}" if private else name


def _is_data_descriptor(cls: type, name: str) -> bool:
    for base in cls.__mro__:
        if name in base.__dict__:
            kind = type_of(base.__dict__[name])
            return hasattr(kind, "__set__")
    return False


class NamedTuplePlan(Plan):
    def __init__(self, cls: Any) -> None:
        super().__init__(cls)
        self._order: tuple[str, ...] = cls._fields
        self._defaults: dict[str, Any] = cls._field_defaults
        self._names = frozenset(self._order)

    def take_apart(self, value: Any) -> tuple[dict[str, Any], State]:
        attrs = extra_attributes(value, frozenset())
        fields = dict(zip(self._order, value, strict=True))
        return fields, {"attrs": attrs} if attrs else {}

    def put_together(self, fields: dict[str, Any], state: State) -> Any:
        if fields.keys() != self._names:
            fields = self._complete(fields)
        value: Any = _new_tuple(self.cls, [fields[name] for name in self._order])
        for name, item in state.get("attrs", {}).items():
            setattr(value, name, item)
        return value

    def _complete(self, fields: dict[str, Any]) -> dict[str, Any]:
        for name in self._order:
            if name not in fields and name not in self._defaults:
                raise self.missing(name)
        return {**self._defaults, **fields}


class StructPlan(Plan):
    """Built by the constructor, the only way in; but `__post_init__` has had its turn before."""

    def __init__(self, cls: type[msgspec.Struct]) -> None:
        super().__init__(cls)
        refuse_builtin_base(cls)
        self._struct = cls
        self._order = cls.__struct_fields__
        self._names = frozenset(self._order)
        self._has_post_init = hasattr(cls, "__post_init__")
        self._blank: msgspec.Struct | None = None

    def take_apart(self, value: Any) -> tuple[dict[str, Any], State]:
        try:
            fields = {name: getattr(value, name) for name in self._order}
        except AttributeError as error:
            raise Refused(type_name(self.cls), f"a field is not set ({error}): set it") from error
        attrs = extra_attributes(value, self._names)
        return fields, {"attrs": attrs} if attrs else {}

    def put_together(self, fields: dict[str, Any], state: State) -> Any:
        if fields.keys() != self._names:
            fields = self._known(fields)
        value = self._without_post_init(fields) if self._has_post_init else self._struct(**fields)
        for name, item in state.get("attrs", {}).items():
            setattr(value, name, item)
        return value

    def _without_post_init(self, fields: dict[str, Any]) -> msgspec.Struct:
        if self._blank is None:
            self._blank = self._struct(**copy.deepcopy(fields))
        value = copy.copy(self._blank)
        for field in msgspec.structs.fields(self._struct):
            item = fields[field.name] if field.name in fields else _struct_default(field)
            msgspec.structs.force_setattr(value, field.name, item)
        return value

    def _known(self, fields: dict[str, Any]) -> dict[str, Any]:
        for field in msgspec.structs.fields(self._struct):
            if field.required and field.name not in fields:
                raise self.missing(field.name)
        return {name: fields[name] for name in self._order if name in fields}


def _struct_default(field: msgspec.structs.FieldInfo) -> Any:
    factory = field.default_factory
    return factory() if callable(factory) else field.default


def _plan(cls: type[Any]) -> Plan | None:
    if issubclass(cls, msgspec.Struct):
        return StructPlan(cls)
    if tuple in cls.__mro__:
        named = hasattr(cls, "_fields") and hasattr(cls, "_field_defaults")
        return NamedTuplePlan(cls) if named else None
    return DataclassPlan(cls) if dataclasses.is_dataclass(cls) else None


plan_makers.append(_plan)
