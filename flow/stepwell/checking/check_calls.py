"""Calls that are built and then nobody awaits, and awaits of what is no durable operation."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stepwell.checking.bodies import Body
from stepwell.checking.problems import Problem, problem, shown
from stepwell.checking.resolving import Code, DurableCall, Outside
from stepwell.checking.scopes import FUNCTION, INNER
from stepwell.checking.tables import EXACT, tree_of

_TO_AWAIT = frozenset(
    (
        "stepwell.deadline",
        "stepwell.parallel",
        "stepwell.race",
        "stepwell.rollback_scope",
        "stepwell.sleep",
        "stepwell.sleep_until",
        "stepwell.start",
        "stepwell.wait_for_ask",
        "stepwell.wait_for_signal",
    )
)
_USES = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.FormattedValue, ast.Subscript)
_OF_A_CALL = frozenset(("with_options", "definition", "args", "kwargs", "options", "hand_on"))
# They make coroutines and scopes of others' into their own, or say nothing of what they hold.
_UNKNOWN = ("builtins.", "typing.", "typing_extensions.", "collections.", "contextlib.", "stepwell")


def check_calls(body: Body) -> Iterator[Problem]:
    for node in body.nodes:
        match node:
            case ast.Expr(value=ast.Call()) if _is_to_await(body, node.value):
                yield problem(body, node.value, "forgotten-call", shown(node.value))
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not _is_read(
                body, node, name
            ):
                for one in _within(value):
                    if _is_to_await(body, one):
                        yield problem(body, one, "forgotten-call", shown(one))
            case ast.Call() if _is_used_as_result(body, node):
                yield problem(
                    body,
                    node,
                    "forgotten-call",
                    shown(node),
                    "put await before it",
                    "is used like its result, and was not awaited",
                )
            case _:
                pass


def _is_to_await(body: Body, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(body.resolve(node), DurableCall):
        return True
    called = body.resolve(node.func)
    if isinstance(called, Outside):
        return called.name in _TO_AWAIT
    return (
        isinstance(called, Code)
        and isinstance(called.node, ast.AsyncFunctionDef)
        and not called.node.decorator_list
    )


def _within(value: ast.expr) -> Iterator[ast.expr]:
    match value:
        case ast.List() | ast.Tuple():
            yield from value.elts
        case ast.ListComp():
            yield value.elt
        case _:
            yield value


def _is_read(body: Body, node: ast.AST, name: str) -> bool:
    home = body.nodes[node].find(name)
    if home is None or not body.is_inside(home):
        return True  # who knows
    return any(
        isinstance(one, ast.Name)
        and one.id == name
        and not isinstance(one.ctx, ast.Store)
        and scope.find(name) is home
        for one, scope in body.nodes.items()
    )


def _is_used_as_result(body: Body, node: ast.Call) -> bool:
    if not isinstance(body.resolve(node), DurableCall):
        return False
    parent = body.parents[node]
    if isinstance(parent, ast.Attribute):
        return parent.attr not in _OF_A_CALL
    if isinstance(parent, ast.If | ast.While | ast.IfExp):
        return parent.test is node
    if isinstance(parent, ast.Return):
        return body.is_workflow and _function_of(body, node) is body.root
    return isinstance(parent, _USES) or (isinstance(parent, ast.For) and parent.iter is node)


def _function_of(body: Body, node: ast.AST) -> ast.AST:
    return next(one for one in body.above(node) if isinstance(one, INNER))


def check_awaits(body: Body) -> Iterator[Problem]:
    for node in body.nodes:
        match node:
            case ast.Await(value=value):
                yield from _foreign(body, value)
            case ast.AsyncWith(items=items):
                for item in items:
                    yield from _foreign(body, item.context_expr)
            case ast.AsyncFor(iter=value):
                yield from _foreign(body, value)
            case ast.comprehension(is_async=1, iter=value):
                yield from _foreign(body, value)
            case ast.Yield() | ast.YieldFrom():
                if body.is_workflow and _function_of(body, node) is body.root:
                    yield problem(body, node, "generator", "yield")
            case _:
                pass


def _foreign(body: Body, value: ast.expr) -> Iterator[Problem]:
    target = body.resolve(value.func if isinstance(value, ast.Call) else value)
    if not isinstance(target, Outside) or target.name.startswith(_UNKNOWN):
        return
    if target.name in EXACT or tree_of(target.name) or not body.resolver.is_there(target.name):
        return  # reported by its name, or nothing is known of it
    yield problem(body, value, "foreign-await", shown(value))


def is_durable_await(body: Body, node: ast.AST) -> bool:
    """Whether this awaits what is journaled."""
    return isinstance(node, ast.Await) and _is_to_await(body, node.value)


def awaits_within(body: Body, statements: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the awaits that these statements execute themselves, in the order of the text."""
    waiting: list[ast.AST] = list(reversed(statements))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield node
        if not isinstance(node, (*FUNCTION, ast.Lambda)):
            waiting += reversed(list(ast.iter_child_nodes(node)))
