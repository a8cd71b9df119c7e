"""References to classes: `module:qualname`, and how they are found again."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import PurePath
from types import ModuleType
from typing import Any

from stepwell_runtime.codec.errors import MissingClass, Refused

_MAIN = "__main__"
_MAIN_ALIASES = frozenset({_MAIN, "__mp_main__"})  # the second: children of multiprocessing "spawn"


# `type` itself: checkers take what `type(value)` returns for partly unknown.
type_of: Callable[[Any], type[Any]] = type


def main_name() -> str:
    """The name under which another process could import `__main__`; "" in a shell or notebook."""
    main = sys.modules.get(_MAIN)
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != _MAIN:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return PurePath(file).stem if isinstance(file, str) else ""


def type_name(cls: type) -> str:
    module = cls.__module__
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"


def make_ref(cls: type) -> str:
    """The reference of `cls`; refuses what could not be imported again."""
    name, module = cls.__qualname__, cls.__module__
    if "<locals>" in name:
        raise Refused(
            type_name(cls),
            "a class made inside a function cannot be imported: move it to module level",
        )
    if "[" in name:
        raise Refused(
            type_name(cls),
            "a parametrised generic cannot be imported by name: give it one with a subclass at "
            f"module level, class Name({name}): ...",
        )
    if not is_importable(cls):
        raise Refused(
            type_name(cls),
            f"{module}.{name} is not this class (redefined, reloaded, renamed or deleted since): "
            "it must be found under its own name, so build the value anew",
        )
    if module in _MAIN_ALIASES:
        module = f"{_MAIN}/{main_name()}"
    return f"{module}:{name}"


def is_importable(cls: type) -> bool:
    module = sys.modules.get(cls.__module__)
    found = module.__dict__.get(cls.__qualname__) if module is not None else None
    return found is cls or (module is not None and _walk(module, cls.__qualname__) is cls)


def plain_ref(ref: str) -> str:
    """The reference without the mark of `__main__`: what stays the same however a file is run."""
    return ref.removeprefix(_MAIN + "/")


def short_name(ref: str) -> str:
    return ref.rpartition(":")[2]


def find(ref: str) -> type:
    """Import the class that `ref` names; MissingClass when there is none."""
    module_name, _, qualname = ref.partition(":")
    try:
        module = _load(module_name)
    except Exception as error:  # an import runs arbitrary code and may raise anything
        raise MissingClass(
            f"cannot import its module ({type(error).__name__}: {error}); restore the module, and "
            "in it the name: an alias of the class is enough",
            ref,
        ) from error
    found = _walk(module, qualname)
    if not isinstance(found, type):
        raise MissingClass(
            f"module {module.__name__!r} has no class {qualname!r}; restore the name: an alias of "
            "the class is enough",
            ref,
        )
    return found


def find_loaded(ref: str) -> type | None:
    """The class that `ref` names, if that takes no import."""
    name, _, qualname = plain_ref(ref).partition(":")
    found: Any = sys.modules.get(_MAIN if name in ("", main_name()) else name)
    for part in qualname.split("."):
        # Not getattr: a module's `__getattr__` may import.
        found = getattr(found, "__dict__", {}).get(part)
    return found if isinstance(found, type) else None


def _load(name: str) -> ModuleType:
    main = sys.modules.get(_MAIN)
    if name.startswith(_MAIN + "/"):
        name = plain_ref(name)
        if main is not None and name in ("", main_name()):
            return main
    elif name in sys.modules:
        return sys.modules[name]
    elif main is not None and name == main_name():
        return main
    if not name:
        raise ImportError("it was defined in an interactive session")
    return importlib.import_module(name)


def _walk(module: ModuleType, qualname: str) -> object:
    found: object = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found
