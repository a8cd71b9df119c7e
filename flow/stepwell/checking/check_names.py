"""Names that workflow code must not use."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stepwell.checking.bodies import Body
from stepwell.checking.problems import Problem, problem, shown
from stepwell.checking.resolving import Class, Durable, Outside
from stepwell.checking.tables import BARE, EXACT, HARMLESS, NEVER_RAISED, Banned, tree_of

_NO_EFFECT = ("Error", "Exception", "Warning", "Timeout", "Expired")


def check_names(body: Body) -> Iterator[Problem]:
    said: set[tuple[int, str]] = set()
    for node in body.nodes:
        for found in _of_node(body, node):
            if (found.line, found.rule) not in said:
                said.add((found.line, found.rule))
                yield found


def _of_node(body: Body, node: ast.AST) -> Iterator[Problem]:
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
        parent = body.parents[node]
        if isinstance(parent, ast.Attribute) and isinstance(body.resolve(parent), Outside):
            return  # the whole name is looked at
        if isinstance(parent, ast.ExceptHandler) or _is_type_test(parent, node):
            return
        target = body.resolve(node)
        if isinstance(target, Outside):
            banned = _banned(body, node, target)
            if banned is not None:
                yield problem(body, node, banned.rule, _said(body, node), banned.remedy)
        elif isinstance(target, Class):
            yield from _of_class(body, node, target)
        elif _is_bare_step(body, node):
            yield problem(body, node, "unjournaled", f"{shown(node)}()")
    elif isinstance(node, ast.ExceptHandler) and node.type is not None:
        yield from _of_handler(body, node.type)


def _banned(body: Body, node: ast.expr, target: Outside) -> Banned | None:
    name, parent = target.name, body.parents[node]
    called = isinstance(parent, ast.Call) and parent.func is node
    if target.is_result or (name.startswith("contextvars.") and _is_set_here(body, node)):
        return None
    if name in BARE:
        bare = isinstance(parent, ast.Call) and called and not parent.args and not parent.keywords
        return BARE[name] if bare else None
    if name in EXACT:
        return EXACT[name]
    tree = tree_of(name)
    if tree is None or name in HARMLESS or name.startswith("random.Random."):
        return None
    last = name.rpartition(".")[2]
    if name == tree[0] and not called:
        return tree[1] if tree[1].rule == "environment" else None  # the module itself
    if not called and (last[:1].isupper() or last.startswith("_")):
        return None  # a class or constant: a type, or a value like another
    if last.endswith(_NO_EFFECT) or target.made in body.nodes:
        return None  # what made it is reported where it is made
    return tree[1]


def _is_set_here(body: Body, node: ast.expr) -> bool:
    """Whether the run gives the context variable its value itself: it has a context of its own."""
    variable = ast.unparse(node).rpartition(".")[0]
    return any(
        isinstance(one, ast.Attribute) and one.attr == "set" and ast.unparse(one.value) == variable
        for one in body.nodes
    )


def _said(body: Body, node: ast.expr) -> str:
    parent = body.parents[node]
    called = isinstance(parent, ast.Call) and parent.func is node
    return f"{shown(node)}()" if called else shown(node)


def _is_type_test(parent: ast.AST, node: ast.AST) -> bool:
    return (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Name)
        and parent.func.id in ("isinstance", "issubclass")
        and node in parent.args[1:]
    )


def _of_class(body: Body, node: ast.expr, cls: Class) -> Iterator[Problem]:
    """A class of the user's does what its base does, and its fields' factories are called."""
    parent = body.parents[node]
    if not (isinstance(parent, ast.Call) and parent.func is node):
        return
    resolve = body.resolver.resolve
    for base in cls.node.bases:
        found = resolve(base, cls.scope)
        if isinstance(found, Outside):
            tree = tree_of(found.name)
            banned = EXACT.get(found.name) or (tree and tree[1])
            if banned and not found.name.endswith(_NO_EFFECT):
                yield problem(body, node, banned.rule, f"{shown(node)}()", banned.remedy)
    given = {keyword.arg for keyword in parent.keywords}
    for line in cls.node.body:
        if not (isinstance(line, ast.AnnAssign) and isinstance(line.value, ast.Call)):
            continue
        for keyword in line.value.keywords:
            made = resolve(keyword.value, body.resolver.scopes(cls.scope.source).of[cls.node])
            if keyword.arg != "default_factory" or not isinstance(made, Outside):
                continue
            field = shown(line.target)
            banned = EXACT.get(made.name) or BARE.get(made.name)
            if banned and field not in given and len(parent.args) < len(cls.node.body):
                what = f"{shown(node)}(), whose {field} comes from {shown(keyword.value)}(),"
                remedy = f"pass {field}=: {banned.remedy}" if banned.remedy else None
                yield problem(body, node, banned.rule, what, remedy)


def _is_bare_step(body: Body, node: ast.expr) -> bool:
    """Whether this is `charge.fn`, the bare function of a step."""
    if not (isinstance(node, ast.Attribute) and node.attr == "fn"):
        return False
    parent = body.parents[node]
    called = isinstance(parent, ast.Call) and parent.func is node
    return called and isinstance(body.resolve(node.value), Durable)


def _of_handler(body: Body, kinds: ast.expr) -> Iterator[Problem]:
    for kind in kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]:
        target = body.resolve(kind)
        if isinstance(target, Outside) and target.name in NEVER_RAISED:
            yield problem(body, kind, "event-loop", shown(kind), NEVER_RAISED[target.name])
