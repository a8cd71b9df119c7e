"""What an expression is, as far as the text of the program says."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from stepwell.checking.scopes import (
    FUNCTION,
    Defined,
    Function,
    Given,
    Imported,
    Scope,
    Scopes,
    scopes_of,
)
from stepwell.checking.sources import Library, Source

DEPTH: Final = 40
_BUILTINS: Final = frozenset(dir(builtins))
Kind: TypeAlias = Literal["step", "task", "workflow"]
_DECORATORS: Final[dict[str, Kind]] = {
    "stepwell.step": "step",
    "stepwell.task": "task",
    "stepwell.workflow": "workflow",
}


@dataclass(frozen=True, slots=True)
class Outside:
    """Something of Python, of stepwell or of another package.

    `full` is its dotted name, with `()` behind what was called, or is an instance of a class.
    `made`: the call that returned it.
    """

    full: str
    made: ast.Call | None = None

    @property
    def name(self) -> str:
        return self.full.replace("()", "")

    @property
    def is_result(self) -> bool:
        return self.full.endswith("()")


@dataclass(frozen=True, slots=True)
class Module:
    source: Source


@dataclass(frozen=True, slots=True)
class Code:
    """A plain function."""

    node: Function
    scope: Scope  # in which it is defined


@dataclass(frozen=True, slots=True)
class Durable:
    """A step, task or workflow. `code`: None = its function is not known."""

    kind: Kind
    code: Code | None


@dataclass(frozen=True, slots=True)
class DurableCall:
    of: Durable


@dataclass(frozen=True, slots=True)
class Class:
    node: ast.ClassDef
    scope: Scope


@dataclass(frozen=True, slots=True)
class Instance:
    of: Class


Target: TypeAlias = Outside | Module | Code | Durable | DurableCall | Class | Instance


class Resolver:
    """Knows the modules that have been looked at, and follows names through them."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._scopes: dict[Source, Scopes] = {}
        self._durable: dict[ast.AST, Durable | None] = {}

    def is_there(self, name: str) -> bool:
        return self._library.is_there(name)

    def scopes(self, source: Source) -> Scopes:
        found = self._scopes.get(source)
        if found is None:
            found = self._scopes[source] = scopes_of(source)
        return found

    def resolve(self, node: ast.expr, scope: Scope, depth: int = 0) -> Target | None:
        if depth > DEPTH:
            return None
        match node:
            case ast.Name():
                return self.name(node.id, scope, depth + 1)
            case ast.Attribute():
                base = self.resolve(node.value, scope, depth + 1)
                return None if base is None else self._member(base, node.attr, depth + 1)
            case ast.Call():
                called = self.resolve(node.func, scope, depth + 1)
                return None if called is None else self._called(called, node, scope, depth + 1)
            case ast.Await():
                return self._awaited(self.resolve(node.value, scope, depth + 1), depth + 1)
            case ast.NamedExpr():
                return self.resolve(node.value, scope, depth + 1)
            case ast.Subscript():  # Signal[bool](…), and nothing that is kept in a container
                found = self.resolve(node.value, scope, depth + 1)
                return found if isinstance(found, Class) else None
            case _:
                return None

    def name(self, name: str, scope: Scope, depth: int = 0) -> Target | None:
        home = scope.find(name)
        if home is None:
            return self._unbound(name, scope, depth)
        bindings = home.names[name]
        fixed = [one for one in bindings if not isinstance(one, Given)]
        if fixed:  # `try: import x` and `except ImportError: x = None` is an import
            return self._bound(fixed[-1], home, depth)
        given = [one for one in bindings if isinstance(one, Given)]
        annotated = [one.annotation for one in given if one.annotation is not None]
        if annotated:
            return self.annotated(annotated[0], home, depth)
        if given[0].parameter and home.parent is not None:
            return self._self(name, home)
        if len(given) == 1 and given[0].value is not None:
            return self.resolve(given[0].value, home, depth + 1)
        return None

    def _self(self, name: str, home: Scope) -> Target | None:
        """Return what the first parameter of a method is."""
        around = home.parent
        if around is None or not isinstance(around.node, ast.ClassDef) or around.parent is None:
            return None
        if not isinstance(home.node, FUNCTION):
            return None
        first = (*home.node.args.posonlyargs, *home.node.args.args)[:1]
        return (
            Instance(Class(around.node, around.parent))
            if [n.arg for n in first] == [name]
            else None
        )

    def _bound(self, binding: Imported | Defined, home: Scope, depth: int) -> Target | None:
        if isinstance(binding, Imported):
            return self.dotted(binding.name, depth)
        if isinstance(binding.node, ast.ClassDef):
            return Class(binding.node, home)
        return self.durable(binding.node, home, depth) or Code(binding.node, home)

    def _unbound(self, name: str, scope: Scope, depth: int) -> Target | None:
        if name in _BUILTINS:
            return Outside(f"builtins.{name}")
        for star in scope.top.stars:
            source = self._library.source(star)
            if source is None:
                return Outside(f"{star}.{name}")
            top = self.scopes(source).top
            if (name in top.names or top.stars) and depth < DEPTH:
                return self.name(name, top, depth + 1)
        return None

    def dotted(self, name: str, depth: int = 0) -> Target | None:
        """Return what a dotted name imports; modules of others are names and no more."""
        if depth > DEPTH:
            return None
        head, _, last = name.rpartition(".")
        source = self._library.source(name)
        if source is not None:
            return Module(source)
        parent = self._library.source(head) if head else None
        if parent is not None:
            return self._member(Module(parent), last, depth + 1)
        return Outside(name)

    def _member(self, base: Target, name: str, depth: int) -> Target | None:
        if depth > DEPTH:
            return None
        match base:
            case Outside():
                return Outside(f"{base.full}.{name}", base.made)
            case Module():
                top = self.scopes(base.source).top
                if name in top.names or top.stars:
                    return self.name(name, top, depth + 1)
                return self.dotted(f"{base.source.name}.{name}", depth + 1)
            case Class() | Instance():
                return self.attribute(base if isinstance(base, Class) else base.of, name, depth + 1)
            case DurableCall() | Durable():
                return base if name == "with_options" else None
            case Code():
                return None

    def attribute(self, cls: Class, name: str, depth: int = 0) -> Target | None:
        """Return a method, or what an annotated field holds."""
        if depth > DEPTH:
            return None
        scope = self.scopes(cls.scope.source).of[cls.node]
        if name in scope.names:
            return self.name(name, scope, depth + 1)
        for base in cls.node.bases:
            found = self.resolve(base, cls.scope, depth + 1)
            if isinstance(found, Class):
                member = self.attribute(found, name, depth + 1)
                if member is not None:
                    return member
            elif isinstance(found, Outside):
                return Outside(f"{found.name}.{name}")
        return None

    def _called(self, called: Target, node: ast.Call, scope: Scope, depth: int) -> Target | None:
        match called:
            case Outside(name=name) if name in _DECORATORS:
                if not node.args:
                    return Outside(f"{name}()", node)
                fn = self.resolve(node.args[0], scope, depth)
                return Durable(_DECORATORS[name], fn if isinstance(fn, Code) else None)
            case Outside():
                return Outside(f"{called.full}()", node)
            case Class():
                return Instance(called)
            case Durable():
                return DurableCall(called)
            case DurableCall():
                return called  # of with_options
            case Code(node=function) if function.returns is not None and isinstance(
                function, ast.FunctionDef
            ):
                return self.annotated(function.returns, called.scope, depth)
            case _:
                return None

    def _awaited(self, value: Target | None, depth: int) -> Target | None:
        if isinstance(value, DurableCall) and value.of.code is not None:
            returns = value.of.code.node.returns
            return None if returns is None else self.annotated(returns, value.of.code.scope, depth)
        return None

    def annotated(self, node: ast.expr, scope: Scope, depth: int = 0) -> Target | None:
        """Return an instance of what an annotation says; of a union, of its first class."""
        node = text_of(node)
        if depth > DEPTH:
            return None
        match node:
            case ast.BinOp(op=ast.BitOr()):
                found = self.annotated(node.left, scope, depth + 1)
                return found or self.annotated(node.right, scope, depth + 1)
            case ast.Subscript(value=value):
                return self.annotated(value, scope, depth + 1)
            case ast.Name() | ast.Attribute():
                found = self.resolve(node, scope, depth + 1)
                if isinstance(found, Class):
                    return Instance(found)
                return Outside(f"{found.full}()") if isinstance(found, Outside) else None
            case _:
                return None

    def durable(self, node: Function, home: Scope, depth: int = 0) -> Durable | None:
        """Return what the decorators of a function make of it; None = they leave it a function."""
        if node not in self._durable:
            self._durable[node] = None  # while this looks: a decorator may be used in itself
            for one in node.decorator_list:
                kind = self._decorator(one, home, depth + 1)
                if kind is not None:
                    self._durable[node] = Durable(kind, Code(node, home))
                    break
        return self._durable[node]

    def _decorator(self, node: ast.expr, scope: Scope, depth: int) -> Kind | None:
        found = self.resolve(node, scope, depth)
        if isinstance(found, Outside):
            return _DECORATORS.get(found.name)
        if found is None and isinstance(node, ast.Call):
            found = self.resolve(node.func, scope, depth)
        if isinstance(found, Code):  # a decorator of the user's that applies one of ours
            inner = self.scopes(found.scope.source).of[found.node]
            for part in ast.walk(found.node):
                if isinstance(part, ast.Name | ast.Attribute):
                    used = self.resolve(part, inner, depth + 1)
                    if isinstance(used, Outside) and used.name in _DECORATORS:
                        return _DECORATORS[used.name]
        return None


def text_of(annotation: ast.expr) -> ast.expr:
    """Return an annotation that is written as a string as the expression it is."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return annotation
    return annotation
