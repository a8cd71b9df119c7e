"""How instances are put together again, and what happens when their class has changed meanwhile."""

from __future__ import annotations

import gc
import re
import weakref
from pathlib import Path
from typing import Any

import pytest

from stepwell_runtime.codec import Codec, DecodingError
from stepwell_runtime.codec._refs import type_of
from tests.codec.conftest import Deploy
from tests.codec.kinds import (
    Computed,
    CountingModel,
    CountingStruct,
    Model,
    OpenModel,
    PrivateModel,
    Slotted,
)


def again(codec: Codec, value: Any) -> Any:
    return codec.decode(codec.encode(value, "here"))


class TestInstances:
    def test_init_and_post_init_do_not_run_again(self, codec: Codec) -> None:
        value = Computed(3, scale=5)
        value.total = 99
        back = again(codec, value)
        assert (back.a, back.total, back._twice) == (3, 99, 6)
        assert not hasattr(back, "unset")

    def test_a_cached_property_is_computed_again(self, codec: Codec) -> None:
        value = Computed(3)
        assert value.lazy == [3]
        back = again(codec, value)
        assert "lazy" not in vars(back)
        assert back.lazy == [3]

    def test_slots_of_base_classes_are_kept(self, codec: Codec) -> None:
        value = Slotted(1)
        value.hide(7)
        assert again(codec, value).hidden() == 7
        assert not hasattr(again(codec, value), "extra")

    def test_a_validator_that_changes_its_input_runs_once(self, codec: Codec) -> None:
        value = CountingModel(n=1)
        assert value.n == 2
        assert again(codec, value).n == 2

    def test_a_validator_does_not_run_again_in_another_process(
        self, codec: Codec, deploy: Deploy
    ) -> None:
        source = (
            "from typing import Annotated, Literal, Optional\n"
            "from pydantic import AfterValidator\n"
            "def more(n): return n + 1\n"
            "class Tag(frozenset): pass\n"
            "class M(BaseModel):\n"
            "    a: list[Annotated[int, AfterValidator(more), object()]]\n"
            "    b: Annotated[int, AfterValidator(lambda n: n + 1)] = 1\n"
            "    c: dict[str, Annotated[int, AfterValidator(more)]] | None = None\n"
            "    d: Optional[Literal['x']] = None\n"
        )
        value = deploy("app", source).M(a=[1], b=1, c={"k": 1}, d="x")
        data = codec.encode(value, "here")
        deploy("app", source)  # every function is now at another address
        assert codec.decode(data).model_dump() == {"a": [2], "b": 2, "c": {"k": 2}, "d": "x"}

    def test_a_struct_is_as_it_was_whatever_its_post_init_does(self, codec: Codec) -> None:
        assert again(codec, CountingStruct(1)).n == 2

    def test_the_defaults_of_a_struct_with_post_init_are_made_afresh(
        self, codec: Codec, deploy: Deploy
    ) -> None:
        source = (
            "class M(msgspec.Struct):\n    a: int\n{}    def __post_init__(self): self.a += 1\n"
        )
        data = codec.encode([deploy("app", source.format("")).M(1)] * 2, "here")
        deploy("app", source.format("    b: list[int] = msgspec.field(default_factory=list)\n"))
        first, second = codec.decode(data)
        assert (first.a, first.b) == (2, [])
        assert first.b is not second.b

    def test_a_model_knows_which_fields_were_set(self, codec: Codec) -> None:
        assert again(codec, Model(a=1)).model_dump(exclude_unset=True) == {"a": 1}
        assert again(codec, Model(a=1, items=[])).model_fields_set == {"a", "items"}

    def test_a_model_keeps_extra_and_private_values(self, codec: Codec) -> None:
        assert again(codec, OpenModel.model_validate({"a": 1, "b": [2]})).b == [2]
        value = PrivateModel(a=1)
        value._secret = 9
        assert again(codec, value)._secret == 9

    def test_a_model_that_came_back_can_be_assigned_and_dumped(self, codec: Codec) -> None:
        back = again(codec, OpenModel(a=1))
        back.a = 2
        back.other = 3
        assert back.model_dump() == {"a": 2, "other": 3}

    def test_a_module_that_is_reloaded_is_not_kept_alive(
        self, codec: Codec, deploy: Deploy
    ) -> None:
        former: list[weakref.ref[type]] = []
        for _ in range(5):
            value = deploy("app", "@dataclass\nclass M:\n    a: int\n").M(1)
            assert again(codec, value) == value
            former.append(weakref.ref(type_of(value)))
            del value
        gc.collect()
        assert [ref() is None for ref in former] == [True] * 4 + [False]

    def test_an_enum_member_is_the_member(self, codec: Codec, deploy: Deploy) -> None:
        module = deploy("moods", "class Mood(enum.Enum):\n    GOOD = {'any': 'value'}\n")
        assert again(codec, module.Mood.GOOD) is module.Mood.GOOD


V1_MODEL = "class M(BaseModel):\n    a: int\n"
V1_DATA = "@dataclass\nclass M:\n    a: int\n"
V1_STRUCT = "class M(msgspec.Struct):\n    a: int\n"
V1_ROW = "class M(NamedTuple):\n    a: int\n"
KINDS = {"model": V1_MODEL, "dataclass": V1_DATA, "struct": V1_STRUCT, "row": V1_ROW}

every_kind = pytest.mark.parametrize("v1", KINDS.values(), ids=KINDS)


class TestEvolution:
    @every_kind
    def test_a_new_field_with_a_default_gets_it(
        self, v1: str, codec: Codec, deploy: Deploy
    ) -> None:
        data = codec.encode(deploy("app", v1).M(a=1), "here")
        v2 = deploy("app", v1 + "    b: int = 7\n")
        back = codec.decode(data)
        assert type(back) is v2.M
        assert (back.a, back.b) == (1, 7)

    @every_kind
    def test_a_new_required_field_is_an_error_that_names_class_and_field(
        self, v1: str, codec: Codec, deploy: Deploy
    ) -> None:
        data = codec.encode([deploy("app", v1).M(a=1)], "here")
        deploy("app", v1 + "    b: int\n")
        with pytest.raises(DecodingError) as caught:
            codec.decode(data, where="the result of step 'load'")
        assert caught.value.path == "app:M"
        assert caught.value.where == "the result of step 'load'"
        for part in ("app:M", "b", "default", "__stepwell_migrate__", "step 'load'"):
            assert part in str(caught.value)

    @every_kind
    def test_a_removed_field_is_dropped(self, v1: str, codec: Codec, deploy: Deploy) -> None:
        data = codec.encode(deploy("app", v1 + "    b: int = 7\n").M(a=1, b=3), "here")
        v2 = deploy("app", v1)
        assert codec.decode(data) == v2.M(a=1)

    @every_kind
    def test_migrate_renames_a_field(self, v1: str, codec: Codec, deploy: Deploy) -> None:
        data = codec.encode({"m": deploy("app", v1).M(a=1)}, "here")
        migrate = (
            "    @classmethod\n"
            "    def __stepwell_migrate__(cls, data):\n"
            "        return {'b' if name == 'a' else name: data[name] for name in data}\n"
        )
        v2 = deploy("app", v1.replace("a:", "b:") + migrate)
        assert codec.decode(data) == {"m": v2.M(b=1)}
        assert again(codec, v2.M(b=5)) == v2.M(b=5)

    def test_the_migration_of_the_reference_works(self, codec: Codec, deploy: Deploy) -> None:
        old = "@dataclass\nclass Order:\n    id: int\n    amount: float\n"
        data = codec.encode(deploy("app", old).Order(1, amount=1.5), "here")
        page = Path(__file__).parents[2] / "docs" / "reference" / "values.md"
        [example] = re.findall("```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        new = deploy("app", example)
        assert codec.decode(data) == new.Order(1, amount_cents=150)

    def test_a_default_factory_makes_a_fresh_value(self, codec: Codec, deploy: Deploy) -> None:
        data = codec.encode(deploy("app", V1_DATA).M(a=1), "here")
        deploy("app", V1_DATA + "    b: list[int] = field(default_factory=list)\n")
        first, second = codec.decode(data), codec.decode(data)
        assert first.b == []
        assert first.b is not second.b

    def test_a_renamed_model_field_is_found_by_its_alias(
        self, codec: Codec, deploy: Deploy
    ) -> None:
        data = codec.encode(deploy("app", V1_MODEL).M(a=1), "here")
        deploy("app", "class M(BaseModel):\n    b: int = Field(alias='a')\n")
        assert codec.decode(data).b == 1

    def test_a_model_field_of_another_type_is_validated(self, codec: Codec, deploy: Deploy) -> None:
        data = codec.encode(deploy("app", V1_MODEL).M(a=1), "here")
        deploy("app", "class M(BaseModel):\n    a: float\n")
        assert type(codec.decode(data).a) is float
        deploy("app", "class M(BaseModel):\n    a: list[int]\n")
        with pytest.raises(DecodingError, match="valid list"):
            codec.decode(data)

    def test_a_dataclass_may_become_a_model(self, codec: Codec, deploy: Deploy) -> None:
        data = codec.encode(deploy("app", V1_DATA).M(a=1), "here")
        v2 = deploy("app", V1_MODEL)
        assert codec.decode(data) == v2.M(a=1)

    def test_a_migrate_that_returns_nothing_is_an_error(self, codec: Codec, deploy: Deploy) -> None:
        data = codec.encode(deploy("app", V1_DATA).M(a=1), "here")
        deploy("app", V1_DATA + "    @classmethod\n    def __stepwell_migrate__(cls, data): ...\n")
        with pytest.raises(DecodingError, match="must return the dict"):
            codec.decode(data)

    def test_an_enum_member_survives_a_new_name_or_a_new_value(
        self, codec: Codec, deploy: Deploy
    ) -> None:
        data = codec.encode(deploy("app", "class E(enum.Enum):\n    A = 1\n").E.A, "here")
        new_value = deploy("app", "class E(enum.Enum):\n    A = 2\n")
        assert codec.decode(data) is new_value.E.A
        new_name = deploy("app", "class E(enum.Enum):\n    B = 1\n")
        assert codec.decode(data) is new_name.E.B
        deploy("app", "class E(enum.Enum):\n    B = 2\n")
        with pytest.raises(DecodingError, match="no member 'A'"):
            codec.decode(data)


class TestMoved:
    @every_kind
    def test_a_class_that_is_gone_is_an_error_never_a_dict(
        self, v1: str, codec: Codec, deploy: Deploy
    ) -> None:
        data = codec.encode(deploy("app", v1).M(a=1), "here")
        deploy("app", "x = 1\n")
        with pytest.raises(DecodingError, match="no class 'M'"):
            codec.decode(data)
        deploy("app", None)
        with pytest.raises(DecodingError, match="cannot import its module"):
            codec.decode(data)

    def test_a_module_that_fails_to_import_is_an_error(self, codec: Codec, deploy: Deploy) -> None:
        data = codec.encode(deploy("app", V1_DATA).M(a=1), "here")
        with pytest.raises(ZeroDivisionError):
            deploy("app", "1/0\n")
        with pytest.raises(DecodingError, match="ZeroDivisionError"):
            codec.decode(data)

    @every_kind
    def test_the_annotation_finds_a_class_that_moved(
        self, v1: str, codec: Codec, deploy: Deploy
    ) -> None:
        data = codec.encode({"k": [deploy("app", v1).M(a=1)]}, "here")
        deploy("app", None)
        moved = deploy("elsewhere", v1)
        assert codec.decode(data, dict[str, list[moved.M]]) == {"k": [moved.M(a=1)]}  # type: ignore[name-defined]  # made at run time

    @every_kind
    def test_the_annotation_finds_a_class_that_was_renamed(
        self, v1: str, codec: Codec, deploy: Deploy
    ) -> None:
        data = codec.encode(deploy("app", v1).M(a=1), "here")
        renamed = deploy("app", v1.replace("class M", "class New"))
        assert codec.decode(data, renamed.New) == renamed.New(a=1)
        assert codec.decode(data, renamed.New | None) == renamed.New(a=1)

    def test_the_annotation_reaches_into_fields(self, codec: Codec, deploy: Deploy) -> None:
        outer = "@dataclass\nclass Outer:\n    m: 'list[M]'\n"
        v1 = deploy("app", V1_DATA + outer)
        data = codec.encode(v1.Outer([v1.M(1)]), "here")
        deploy("app", None)
        v2 = deploy("elsewhere", V1_DATA + outer)
        assert codec.decode(data, v2.Outer) == v2.Outer([v2.M(1)])

    def test_an_alias_under_the_former_name_is_found(self, codec: Codec, deploy: Deploy) -> None:
        data = codec.encode([deploy("app", V1_DATA).M(a=1)], "here")
        renamed = deploy("app", V1_DATA.replace("class M", "class New") + "M = New\n")
        assert codec.decode(data) == [renamed.New(a=1)]
        assert codec.decode(codec.encode(renamed.New(2), "here")) == renamed.New(2)
        deploy("elsewhere", V1_DATA)
        moved = deploy("app", "from elsewhere import M\n")
        assert codec.decode(data) == [moved.M(a=1)]

    def test_a_registered_former_name_is_found(self, codec: Codec, deploy: Deploy) -> None:
        data = codec.encode([deploy("app", V1_DATA).M(a=1)], "here")
        renamed = deploy("app", V1_DATA.replace("class M", "class New"))
        codec.register(renamed.New, formerly=("app:M",))
        assert codec.decode(data) == [renamed.New(a=1)]

    def test_an_annotation_of_another_class_is_not_taken_for_it(
        self, codec: Codec, deploy: Deploy
    ) -> None:
        data = codec.encode([deploy("app", V1_DATA).M(a=1)], "here")
        deploy("app", "x = 1\n")
        for annotation in (int, list[int], Model, dict[str, Model], object):
            with pytest.raises(DecodingError, match="no class 'M'"):
                codec.decode(data, annotation)

    def test_what_is_no_class_for_data_any_more_is_an_error(
        self, codec: Codec, deploy: Deploy
    ) -> None:
        data = codec.encode(deploy("app", V1_DATA).M(a=1), "here")
        deploy("app", "class M:\n    pass\n")
        with pytest.raises(DecodingError, match="not a class for data"):
            codec.decode(data)
        deploy("app", "def M(a): raise AssertionError\n")
        with pytest.raises(DecodingError, match="no class 'M'"):
            codec.decode(data)
