"""Variables that outlive a run: changed in workflow code, or read there and changed anywhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from stepwell.checking.bodies import Body
from stepwell.checking.problems import Problem, problem
from stepwell.checking.resolving import Module, Outside, Resolver
from stepwell.checking.scopes import FUNCTION, Defined, Given, Imported, Scope, Scopes

_CHANGE: Final = frozenset(
    (
        *("append", "appendleft", "add", "update", "extend", "insert", "remove", "discard"),
        *("pop", "popitem", "popleft", "clear", "setdefault", "sort", "reverse", "rotate"),
        *("subtract", "difference_update", "intersection_update"),
    )
)
_CONTAINERS: Final = frozenset(
    f"{home}.{name}"
    for home, names in {
        "builtins": ("list", "dict", "set", "bytearray"),
        "collections": ("defaultdict", "deque", "Counter", "OrderedDict"),
        "typing": ("List", "Dict", "Set", "DefaultDict", "Deque", "MutableMapping"),
        "collections.abc": ("MutableMapping", "MutableSequence", "MutableSet"),
    }.items()
    for name in names
)
_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_Name = tuple[Scope, str]  # where it is bound, and its name


def check_state(body: Body, changes: Changes) -> Iterator[Problem]:
    said: set[tuple[int, str]] = set()
    written: set[ast.AST] = set()
    for node in body.nodes:
        for name in _changed(body.resolver, node, body.nodes[node]):
            written.add(name)
            if not body.is_inside(body.nodes[node].find(name.id)):
                said.add((name.lineno, name.id))
                yield problem(body, name, "global-state", f"{name.id} is changed here, and")
    for node in body.nodes:
        if not isinstance(node, ast.Name | ast.Attribute) or node in written:
            continue
        owner = _owner(body, node) if isinstance(node.ctx, ast.Load) else None
        if owner is not None and owner in changes and (node.lineno, owner[1]) not in said:
            said.add((node.lineno, owner[1]))
            yield problem(body, node, "global-state", f"{owner[1]} is changed elsewhere, and")


def _owner(body: Body, node: ast.Name | ast.Attribute) -> _Name | None:
    """Return which variable outside of the run this reads."""
    if isinstance(node, ast.Attribute):
        base = body.resolve(node.value)
        return _in_module(base, node.attr, body) if isinstance(base, Module) else None
    home = body.nodes[node].find(node.id)
    if home is None or body.is_inside(home):
        return None
    binding = home.names[node.id][-1]
    if isinstance(binding, Imported):
        module, _, last = binding.name.rpartition(".")
        found = body.resolver.dotted(module) if module else None
        return _in_module(found, last, body) or (home, node.id)
    return (home, node.id)


def _in_module(found: object, name: str, body: Body) -> _Name | None:
    return (body.resolver.scopes(found.source).top, name) if isinstance(found, Module) else None


class Changes:
    """The variables of modules, and of functions around others, that some function changes."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._of: dict[Scope, set[str]] = {}

    def __contains__(self, name: _Name) -> bool:
        home, text = name
        top = home.top
        if top not in self._of:
            self._look_through(self._resolver.scopes(top.source))
        return text in self._of.get(home, ())

    def _look_through(self, scopes: Scopes) -> None:
        self._of[scopes.top] = set()
        at_import = _called_at_import(scopes.top.node)
        waiting: list[tuple[ast.AST, Scope]] = [(scopes.top.node, scopes.top)]
        while waiting:
            node, scope = waiting.pop()
            inner = scopes.of.get(node, scope)
            if isinstance(node, FUNCTION) and scope is scopes.top and node.name in at_import:
                continue  # it fills a registry, say, before any run is there
            waiting += [(child, inner) for child in ast.iter_child_nodes(node)]
            for name in _changed(self._resolver, node, scope):
                home = scope.find(name.id)
                if home is not None and home is not scope and _is_variable(home, name.id):
                    self._of.setdefault(home, set()).add(name.id)


def _called_at_import(module: ast.AST) -> set[str]:
    """Return the names that are called, or decorate, while the module is imported."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test):
            continue
        called: list[ast.expr] = []
        if isinstance(node, (*FUNCTION, ast.ClassDef)):
            called = node.decorator_list
            waiting += called
        elif isinstance(node, ast.Call):
            called = [node.func]
        found.update(one.id for one in called if isinstance(one, ast.Name))
        if not isinstance(node, (*FUNCTION, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
    return found


def _is_variable(home: Scope, name: str) -> bool:
    return any(
        isinstance(one, Given)
        or (isinstance(one, Defined) and isinstance(one.node, ast.ClassDef))  # its attributes
        for one in home.names[name]
    )


def _changed(resolver: Resolver, node: ast.AST, scope: Scope) -> Iterator[ast.Name]:
    """Yield the names whose values, or what is within them, this node changes."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            yield from (name for target in targets for name in _base(target, scope))
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            yield from _base(target, scope)
        case ast.For(target=target) | ast.AsyncFor(target=target):
            yield from _base(target, scope)
        case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _CHANGE:
            while isinstance(value, ast.Subscript | ast.Attribute):
                value = value.value
            if isinstance(value, ast.Name) and _is_container(resolver, value, scope):
                yield value
        case _:
            pass


def _base(target: ast.expr, scope: Scope) -> Iterator[ast.Name]:
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from _base(one, scope)
    elif isinstance(target, ast.Name):
        if target.id in scope.outer and isinstance(scope.node, FUNCTION):
            yield target
    else:
        while isinstance(target, ast.Subscript | ast.Attribute | ast.Starred):
            target = target.value
        if isinstance(target, ast.Name):
            yield target


def _is_container(resolver: Resolver, node: ast.Name, scope: Scope) -> bool:
    target = resolver.name(node.id, scope)
    if isinstance(target, Outside) and target.name in _CONTAINERS:
        return True
    home = scope.find(node.id)
    bindings = home.names[node.id] if home is not None else []
    return any(isinstance(one, Given) and isinstance(one.value, _DISPLAYS) for one in bindings)
