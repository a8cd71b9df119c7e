"""The code that workflows execute: their functions, and all that those call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from stepwell.checking.resolving import Class, Code, Instance, Resolver, Target
from stepwell.checking.scopes import FUNCTION, Function, Scope
from stepwell.checking.sources import Source

_SET_UP = ("__new__", "__init__", "__post_init__")


@dataclass(eq=False, slots=True)
class Body:
    """One function that a workflow executes. `workflow`: the first one that was found to."""

    resolver: Resolver
    source: Source
    root: Function | ast.Lambda
    workflow: str
    nodes: dict[ast.AST, Scope]
    parents: dict[ast.AST, ast.AST]

    @property
    def is_workflow(self) -> bool:
        return isinstance(self.root, FUNCTION) and self.root.name == self.workflow

    def resolve(self, node: ast.expr) -> Target | None:
        return self.resolver.resolve(node, self.nodes[node])

    def is_inside(self, scope: Scope | None) -> bool:
        """Whether what is bound there belongs to the run: to this function or one within."""
        return scope is not None and (scope.node is self.root or scope.node in self.nodes)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what is around a node, from the inside out, up to the root."""
        while node is not self.root and node in self.parents:
            node = self.parents[node]
            yield node


def body_of(resolver: Resolver, source: Source, root: Function | ast.Lambda, workflow: str) -> Body:
    scopes = resolver.scopes(source)
    body = Body(resolver, source, root, workflow, {}, {})
    first = [root.body] if isinstance(root, ast.Lambda) else root.body
    waiting: list[tuple[ast.AST, ast.AST, Scope]] = [
        (node, root, scopes.of[root]) for node in reversed(first)
    ]
    while waiting:
        node, parent, scope = waiting.pop()
        body.nodes[node], body.parents[node] = scope, parent
        inner = scopes.of.get(node, scope)
        children = list(_executed(resolver, node, scope))
        waiting += [(child, node, inner) for child in reversed(children)]
    return body


def _executed(resolver: Resolver, node: ast.AST, scope: Scope) -> Iterator[ast.AST]:
    """Yield what is executed of a node's children: no annotations, and no bodies of steps."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from node.args.defaults
            yield from (one for one in node.args.kw_defaults if one is not None)
            if resolver.durable(node, scope) is None:
                yield from node.body
        case ast.AnnAssign():
            yield node.target
            if node.value is not None:
                yield node.value
        case ast.Lambda():
            yield from node.args.defaults
            yield node.body
        case _:
            yield from ast.iter_child_nodes(node)


class Bodies:
    """Finds the bodies of all workflows of some modules, each once."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._seen: set[ast.AST] = set()
        self._waiting: list[tuple[Source, Function | ast.Lambda, str]] = []

    def of(self, sources: list[Source]) -> Iterator[Body]:
        for source in sources:
            self._begin(source)
        while self._waiting:
            source, root, workflow = self._waiting.pop(0)
            if root in self._seen:  # it is within another one, which has been looked at
                continue
            body = body_of(self._resolver, source, root, workflow)
            self._seen.add(root)
            self._seen.update(body.nodes)
            yield body
            for node in body.nodes:
                self._follow(body, node)

    def _begin(self, source: Source) -> None:
        scopes = self._resolver.scopes(source)
        for node, scope in scopes.around.items():
            if isinstance(node, FUNCTION):
                durable = self._resolver.durable(node, scope)
                if durable is not None and durable.kind == "workflow":
                    self._add(Code(node, scope), node.name)
                elif durable is not None:
                    self._begin_undo(source, node, scope)

    def _begin_undo(self, source: Source, node: Function, scope: Scope) -> None:
        """A function that makes the undo of a step's result is called by the workflow."""
        for decorator in node.decorator_list:
            for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
                if keyword.arg == "compensate":
                    made = keyword.value
                    if isinstance(made, ast.Lambda):
                        self._waiting.append((source, made, node.name))
                    else:
                        self._add(self._resolver.resolve(made, scope), node.name)

    def _add(self, found: Target | None, workflow: str) -> None:
        if isinstance(found, Code) and found.scope.source.own:
            self._waiting.append((found.scope.source, found.node, workflow))

    def _follow(self, body: Body, node: ast.AST) -> None:
        """Add what a node refers to: a function that is named in a workflow is called there."""
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            found = body.resolve(node)
            self._add(found, body.workflow)
        elif isinstance(node, ast.Call):
            found = body.resolve(node)
            if isinstance(found, Instance) and isinstance(body.resolve(node.func), Class):
                for name in _SET_UP:
                    self._add(self._resolver.attribute(found.of, name), body.workflow)
