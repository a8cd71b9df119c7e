"""Iteration over sets, whose order is another one in each process."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stepwell.checking.bodies import Body
from stepwell.checking.problems import Problem, problem, shown
from stepwell.checking.resolving import Outside
from stepwell.checking.scopes import Given

_SETS = frozenset(
    f"{home}.{name}"
    for home, names in {
        "builtins": ("set", "frozenset"),
        "typing": ("Set", "FrozenSet", "AbstractSet", "MutableSet"),
        "collections.abc": ("Set", "MutableSet"),
    }.items()
    for name in names
)
_MAKE_SETS = frozenset(("union", "intersection", "difference", "symmetric_difference", "copy"))
_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
# They take the elements one by one, and what comes out depends on their order.
_IN_ORDER = frozenset(
    f"builtins.{name}"
    for name in ("list", "tuple", "enumerate", "iter", "zip", "map", "filter", "reversed")
) | {"collections.deque", "itertools.chain", "itertools.batched", "itertools.islice"}
# They do not care.
_ANY_ORDER = frozenset(
    f"builtins.{name}"
    for name in ("sorted", "set", "frozenset", "len", "min", "max", "sum", "any", "all")
) | {"collections.Counter", "math.fsum"}


def check_sets(body: Body) -> Iterator[Problem]:
    for node in body.nodes:
        for one in _gone_through(body, node):
            if _is_set(body, one):
                yield problem(body, one, "set-order", shown(one))


def _gone_through(body: Body, node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions whose elements this node takes in their order."""
    match node:
        case ast.For():
            yield node.iter
        case ast.ListComp() | ast.DictComp() | ast.GeneratorExp():
            if not _is_consumed_in_any_order(body, node):
                yield from (one.iter for one in node.generators)
        case ast.Starred(ctx=ast.Load()):
            if not isinstance(body.parents[node], ast.Set):
                yield node.value
        case ast.Assign() if any(isinstance(one, ast.Tuple | ast.List) for one in node.targets):
            yield node.value
        case ast.Call(func=ast.Attribute(value=value, attr="pop"), args=[]):
            yield value
        case ast.Call(func=ast.Attribute(attr="join" | "extend" | "fromkeys")):
            yield from node.args
        case ast.Call():
            found = body.resolve(node.func)
            in_order = isinstance(found, Outside) and found.name in _IN_ORDER
            if in_order and not _is_consumed_in_any_order(body, node):
                yield from node.args
        case _:
            pass


def _is_consumed_in_any_order(body: Body, node: ast.AST) -> bool:
    parent = body.parents[node]
    if not isinstance(parent, ast.Call):
        return False
    found = body.resolve(parent.func)
    return isinstance(found, Outside) and found.name in _ANY_ORDER


def _is_set(body: Body, node: ast.expr, depth: int = 0) -> bool:
    if depth > 20:
        return False
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.BinOp(op=op) if isinstance(op, _OPERATORS):
            return any(
                _is_set(body, side, depth + 1) or _is_view(side) for side in (node.left, node.right)
            )
        case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _MAKE_SETS:
            return _is_set(body, value, depth + 1)
        case ast.IfExp():
            return _is_set(body, node.body, depth + 1) or _is_set(body, node.orelse, depth + 1)
        case ast.Name():
            return _is_set_variable(body, node, depth)
        case _:
            target = body.resolve(node) if node in body.nodes else None
            return isinstance(target, Outside) and target.name in _SETS


def _is_set_variable(body: Body, node: ast.Name, depth: int) -> bool:
    scope = body.nodes.get(node)
    home = scope.find(node.id) if scope is not None else None
    if home is None or scope is None:
        return False
    target = body.resolver.name(node.id, scope)
    if isinstance(target, Outside) and target.name in _SETS:
        return True
    values = [one.value for one in home.names[node.id] if isinstance(one, Given)]
    known = [one for one in values if one is not None]
    return (
        bool(known)
        and len(known) == len(values)
        and all(_is_set(body, one, depth + 1) for one in known)
    )


def _is_view(node: ast.expr) -> bool:
    """Whether this is the keys or items of a dict: what operators make of them is a set."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("keys", "items")
        and not node.args
    )
