"""Pydantic models. Pydantic is never imported here: a model in hand means that it already is."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

from stepwell_runtime.codec._hints import spell
from stepwell_runtime.codec._plans import Plan, State, plan_makers, refuse_builtin_base
from stepwell_runtime.codec._refs import main_name
from stepwell_runtime.codec.errors import Unreadable

_set = object.__setattr__


class ModelPlan(Plan):
    """Restored exactly while the class has the fields that were stored, else validated by it.

    Validating always was rejected: validators that change their input would change it once more.
    Data from outside always is.
    """

    state_not_compared = frozenset({"set", "schema"})

    def __init__(self, cls: Any) -> None:
        super().__init__(cls)
        refuse_builtin_base(cls)
        self._model = cls
        self._names = frozenset(self._model.model_fields)
        self._schema = _schema(self._model)
        self._is_root: bool = self._model.__pydantic_root_model__

    def take_apart(self, value: Any) -> tuple[dict[str, Any], State]:
        own = value.__dict__
        state: State = {"schema": self._schema}
        fields = {name: item for name, item in own.items() if name in self._names}
        if value.__pydantic_extra__:
            state["extra"] = value.__pydantic_extra__
        if value.__pydantic_private__:
            state["private"] = value.__pydantic_private__
        if value.__pydantic_fields_set__ != fields.keys():
            state["set"] = sorted(value.__pydantic_fields_set__)
        return fields, state

    def check_state(self, state: State) -> State:
        return {**state, "outside": True}

    def put_together(self, fields: dict[str, Any], state: State) -> Any:
        same = state.get("schema") == self._schema and self._names.issuperset(fields)
        if not same or "outside" in state:
            return self._validate(fields, state, by_alias=not same)
        model = self._model.__new__(self._model)
        _set(model, "__dict__", fields)
        fields_set = state.get("set")
        _set(model, "__pydantic_fields_set__", set(fields if fields_set is None else fields_set))
        if not self._is_root:  # a root model has neither, and no slot to put them
            _set(model, "__pydantic_extra__", state.get("extra", self._no_extra()))
            _set(model, "__pydantic_private__", state.get("private", self._no_private()))
        return model

    def _no_extra(self) -> dict[str, Any] | None:
        return {} if self._model.model_config.get("extra") == "allow" else None

    def _no_private(self) -> dict[str, Any] | None:
        return {} if self._model.__private_attributes__ else None

    def _validate(self, fields: dict[str, Any], state: State, *, by_alias: bool) -> Any:
        from pydantic import ValidationError

        data = fields.get("root") if self._is_root else {**state.get("extra", {}), **fields}
        try:
            model = self._model.model_validate(data, by_alias=by_alias, by_name=True)
        except ValidationError as error:
            raise Unreadable(
                f"the stored data does not fit the class as it is now: {error}; give new fields a "
                "default or an alias, or add a classmethod __stepwell_migrate__(cls, data)",
                self.ref,
            ) from error
        if "set" in state:
            model.__pydantic_fields_set__.intersection_update(state["set"])
        for name, item in state.get("private", {}).items():
            if name in self._model.__private_attributes__:
                setattr(model, name, item)
        return model


def _schema(model: Any) -> int:
    """Changes with the names, types and aliases of the fields, and with nothing else."""
    lines = sorted(
        f"{name}: {spell(field.annotation)} {field.alias} {field.validation_alias!r}"
        for name, field in model.model_fields.items()
    )
    text = "\n".join(lines).replace("__main__.", main_name() + ".")
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big")


def _plan(cls: type) -> Plan | None:
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not issubclass(cls, pydantic.BaseModel):
        return None
    return ModelPlan(cls)


plan_makers.append(_plan)
