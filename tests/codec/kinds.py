"""Classes of every kind that can be stored, at module level as they have to be."""

from __future__ import annotations

import dataclasses
import enum
from collections import namedtuple
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypedDict, TypeVar

import msgspec
import pydantic

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = ("b", 2)
    CRIMSON = "red"  # noqa: PIE796 - an alias is what is tested


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    YES = "yes"


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Planet(enum.Enum):
    """Members with an own `__init__`."""

    EARTH = (5.9, 6.3)

    def __init__(self, mass: float, radius: float) -> None:
        self.mass, self.radius = mass, radius


@dataclass
class Item:
    name: str
    price: float = 0.0


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True)
class Frozen:
    tags: frozenset[str]
    at: Any = None


@dataclass
class Order:
    id: int
    _: KW_ONLY
    items: list[Item] = field(default_factory=list[Item])
    by_name: dict[str, Any] = field(default_factory=dict[str, Any])
    level: Level = Level.LOW


@dataclass
class Derived(Order):
    note: str = ""


@dataclass
class Computed:
    """`total` is a field of its own, `_twice` an attribute, `lazy` a cached property."""

    a: int
    total: int = field(init=False)
    unset: int = field(init=False, repr=False, compare=False)
    kind: ClassVar[str] = "k"
    scale: InitVar[int] = 2

    def __post_init__(self, scale: int) -> None:
        self.total = self.a * scale
        self._twice = self.a * 2

    @cached_property
    def lazy(self) -> list[int]:
        return [self.a]


class _Upper:
    """A descriptor as a field's default: it keeps its value elsewhere."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = "_" + name

    def __get__(self, obj: object, owner: type | None = None) -> str:
        return "DEFAULT" if obj is None else str(getattr(obj, self._name))

    def __set__(self, obj: object, value: str) -> None:
        setattr(obj, self._name, value.upper())


@dataclass
class Described:
    code: _Upper = _Upper()


@dataclass
class Box(Generic[T]):
    content: T


class _SlotBase:
    __slots__ = ("__hidden", "extra")

    def hide(self, value: int) -> None:
        self.__hidden = value

    def hidden(self) -> int:
        return self.__hidden


@dataclass(slots=True)
class Slotted(_SlotBase):
    a: int


class Outer:
    @dataclass
    class Inner:
        a: int

    class Mood(enum.Enum):
        GOOD = 1


# Untyped is what is tested.
Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024  # pyright: ignore[reportUntypedNamedTuple]


class Row(NamedTuple):
    id: int
    label: str = "none"


class FatRow(Row):
    """A named tuple with attributes."""

    comment: str


class Struct(msgspec.Struct):
    a: int
    b: Any = None


class FrozenStruct(msgspec.Struct, frozen=True, kw_only=True, tag="f", rename="camel"):
    some_name: int
    other: tuple[int, ...] = ()


class CountingStruct(msgspec.Struct):
    """Not the same after a second `__post_init__`."""

    n: int

    def __post_init__(self) -> None:
        self.n += 1


class AppendingStruct(msgspec.Struct):
    """Changes a value in place after building."""

    names: list[str]
    note: str = "n"

    def __post_init__(self) -> None:
        self.names.append("more")


class DictStruct(msgspec.Struct, dict=True):
    a: int


class Settings(TypedDict):
    on: bool
    rate: float


class Model(pydantic.BaseModel):
    a: int
    items: list[Item] = []
    colour: Colour = Colour.RED
    anything: Any = None


class AliasModel(pydantic.BaseModel):
    some_name: int = pydantic.Field(alias="someName")


class Swapped(pydantic.BaseModel):
    """Each field's alias is the other's name."""

    a: int = pydantic.Field(alias="b")
    b: int = pydantic.Field(alias="a")


class OpenModel(pydantic.BaseModel, extra="allow"):
    a: int


class PrivateModel(pydantic.BaseModel):
    a: int
    _secret: int = pydantic.PrivateAttr(default=0)


class FrozenModel(pydantic.BaseModel, frozen=True):
    a: int


class CountingModel(pydantic.BaseModel):
    """Its validator changes what it sees, each time."""

    n: int

    @pydantic.field_validator("n")
    @classmethod
    def _more(cls, value: int) -> int:
        return value + 1


class Names(pydantic.RootModel[list[str]]):
    pass


class GenericModel(pydantic.BaseModel, Generic[T]):
    content: T


class IntModel(GenericModel[int]):
    pass


@pydantic.dataclasses.dataclass
class Checked:
    a: int
    b: list[int] = dataclasses.field(default_factory=list[int])


class EmptyModel(pydantic.BaseModel):
    pass


class EmptyStruct(msgspec.Struct):
    pass


@dataclass(slots=True)
class EmptySlots:
    pass


@dataclass
class Empty:
    pass


class EmptyRow(NamedTuple):
    pass


class Child(Slotted):
    """No dataclass by itself, with attributes beside the slots."""


# Kinds that are refused.


class MyStr(str):
    __slots__ = ()


class MyInt(int):
    pass


class MyDict(dict[str, int]):
    pass


class MyList(list[int]):
    pass


class MyTuple(tuple[int, ...]):
    __slots__ = ()


@dataclass
class DictData(dict[str, int]):
    a: int


class Plain:
    pass
