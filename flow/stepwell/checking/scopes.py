"""What each name of a module is bound to, function by function."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TypeAlias

from stepwell.checking.sources import Source

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Inner: TypeAlias = Function | ast.Lambda | ast.ClassDef

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
INNER = (*FUNCTION, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Imported:
    name: str  # dotted


@dataclass(frozen=True, slots=True)
class Defined:
    node: Function | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Given:
    """A variable or parameter. `value`: None = it comes out of a loop, an unpacking or a caller."""

    value: ast.expr | None
    annotation: ast.expr | None = None
    parameter: bool = False


Binding: TypeAlias = Imported | Defined | Given


@dataclass(eq=False, slots=True)
class Scope:
    source: Source
    node: ast.Module | Inner
    parent: Scope | None
    names: dict[str, list[Binding]] = field(default_factory=dict[str, list[Binding]])
    outer: set[str] = field(default_factory=set[str])  # said to be global or nonlocal
    stars: list[str] = field(default_factory=list[str])

    def bind(self, name: str, binding: Binding) -> None:
        self.names.setdefault(name, []).append(binding)

    def find(self, name: str) -> Scope | None:
        """Return the scope that binds `name`, as seen from here; None = a builtin, or unknown."""
        scope: Scope | None = self
        while scope is not None:
            visible = scope is self or not isinstance(scope.node, ast.ClassDef)
            if visible and name in scope.names and name not in scope.outer:
                return scope
            scope = scope.parent
        return None

    @property
    def top(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope


@dataclass(eq=False, slots=True)
class Scopes:
    """All scopes of a module: `of` those that a function, lambda or class makes."""

    top: Scope
    of: dict[ast.AST, Scope]
    around: dict[ast.AST, Scope]  # in which each function and class is defined


def scopes_of(source: Source) -> Scopes:
    top = Scope(source, source.tree, None)
    found = Scopes(top, {source.tree: top}, {})
    waiting: list[tuple[ast.AST, Scope]] = [(node, top) for node in source.tree.body]
    while waiting:
        node, scope = waiting.pop()
        inner = scope
        if isinstance(node, INNER):
            inner = found.of[node] = Scope(source, node, scope)
            found.around[node] = scope
            _bind_parameters(node, inner)
        _bind(node, scope)
        waiting += [(child, inner) for child in ast.iter_child_nodes(node)]
    return found


def _bind_parameters(node: Inner, inner: Scope) -> None:
    if isinstance(node, ast.ClassDef):
        return
    given = node.args
    for one in (*given.posonlyargs, *given.args, *given.kwonlyargs):
        inner.bind(one.arg, Given(None, one.annotation, parameter=True))
    for rest in (given.vararg, given.kwarg):
        if rest is not None:
            inner.bind(rest.arg, Given(None, parameter=True))


def _bind(node: ast.AST, scope: Scope) -> None:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            scope.bind(node.name, Defined(node))
        case ast.Import():
            for alias in node.names:
                top = alias.name.partition(".")[0]
                full = alias.name if alias.asname else top
                scope.bind(alias.asname or top, Imported(full))
        case ast.ImportFrom():
            _bind_from(node, scope)
        case ast.Global() | ast.Nonlocal():
            scope.outer.update(node.names)
        case _:
            _bind_variable(node, scope)


def _bind_variable(node: ast.AST, scope: Scope) -> None:
    match node:
        case ast.Assign():
            for target in node.targets:
                if isinstance(target, ast.Name):
                    scope.bind(target.id, Given(node.value))
        case ast.AnnAssign(target=ast.Name(id=name)):
            scope.bind(name, Given(node.value, node.annotation))
        case ast.NamedExpr(target=ast.Name(id=name)):
            scope.bind(name, Given(node.value))
        case ast.withitem(optional_vars=ast.Name(id=name)):
            scope.bind(name, Given(node.context_expr))
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
            if node.name is not None:
                scope.bind(node.name, Given(None))
        case ast.Name(ctx=ast.Store()):
            if node.id not in scope.names:  # a loop, an unpacking, a comprehension
                scope.bind(node.id, Given(None))
        case _:
            pass


def _bind_from(node: ast.ImportFrom, scope: Scope) -> None:
    module = node.module or ""
    if node.level:
        parts = scope.source.package.split(".")
        kept = parts[: len(parts) - node.level + 1]
        module = ".".join((*kept, module) if module else kept)
    for alias in node.names:
        if alias.name == "*":
            scope.top.stars.append(module)
        else:
            scope.bind(alias.asname or alias.name, Imported(f"{module}.{alias.name}"))
