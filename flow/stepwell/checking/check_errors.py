"""What `except` and `finally` do to a run that is cancelled or put aside."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stepwell.checking.bodies import Body
from stepwell.checking.check_calls import awaits_within, is_durable_await
from stepwell.checking.problems import Problem, problem, shown
from stepwell.checking.resolving import Class, Code, Instance, Outside
from stepwell.checking.scopes import FUNCTION, INNER
from stepwell.checking.tables import NOT_STORABLE, under

_ALL = frozenset(("builtins.BaseException", "builtins.BaseExceptionGroup"))
_CANCELLED = "stepwell.Cancelled"
_CONTROL = frozenset(
    f"builtins.{name}" for name in ("StopIteration", "StopAsyncIteration", "GeneratorExit")
)
_ERRORS = ("Error", "Exception", "Exit", "Interrupt", "StopIteration")
_TRY = (ast.Try, ast.TryStar)
_LOOP = (ast.For, ast.AsyncFor, ast.While)
_BEHIND = "stands behind another await in a finally block: a cancel during that one skips it"
_PUT_ASIDE = (
    "is in a finally block, which also runs each time a worker puts the run aside, and not at all "
    "when it dies"
)


def check_errors(body: Body) -> Iterator[Problem]:
    for node in body.nodes:
        if isinstance(node, _TRY):
            if any(awaits_within(body, node.body)):
                yield from _swallowed(body, node)
                yield from _lost(body, node)
            yield from _left(body, node)
            yield from _effects(body, node)
        elif isinstance(node, ast.With) and any(awaits_within(body, node.body)):
            yield from _suppressed(body, node)


def _kinds(kinds: ast.expr | None) -> list[ast.expr]:
    if kinds is None:
        return []
    return kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]


def _name(body: Body, kind: ast.expr) -> str:
    target = body.resolve(kind)
    return target.name if isinstance(target, Outside) else ""


def _swallowed(body: Body, node: ast.Try | ast.TryStar) -> Iterator[Problem]:
    for handler in node.handlers:
        names = {_name(body, kind) for kind in _kinds(handler.type)}
        if _CANCELLED in names and len(names) == 1:
            return  # said on purpose, and the handlers behind do not get it
        if (handler.type is None or names & _ALL) and not _raises(handler):
            what = "except" if handler.type is None else f"except {shown(handler.type)}"
            yield problem(body, handler, "swallowed-cancel", what)


def _raises(handler: ast.ExceptHandler) -> bool:
    waiting: list[ast.AST] = list(handler.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise):
            return True
        if not isinstance(node, INNER):
            waiting += ast.iter_child_nodes(node)
    return False


def _suppressed(body: Body, node: ast.With) -> Iterator[Problem]:
    for item in node.items:
        call = item.context_expr
        if not isinstance(call, ast.Call) or _name(body, call.func) != "contextlib.suppress":
            continue
        if any(_name(body, kind) in _ALL for kind in call.args):
            yield problem(body, call, "swallowed-cancel", shown(call))


def _left(body: Body, node: ast.Try | ast.TryStar) -> Iterator[Problem]:
    """A `finally` that is left by return, break or continue drops the exception it is run for."""
    waiting: list[tuple[ast.AST, bool]] = [(one, False) for one in node.finalbody]
    while waiting:
        one, in_loop = waiting.pop()
        if isinstance(one, ast.Return) or (
            isinstance(one, ast.Break | ast.Continue) and not in_loop
        ):
            what = f"{type(one).__name__.lower()} in a finally block"
            remedy = "put it behind the try statement"
            yield problem(body, one, "swallowed-cancel", what, remedy)
        if not isinstance(one, INNER):
            inner = in_loop or isinstance(one, _LOOP)
            waiting += [(child, inner) for child in ast.iter_child_nodes(one)]


def _effects(body: Body, node: ast.Try | ast.TryStar) -> Iterator[Problem]:
    durable = [one for one in awaits_within(body, node.finalbody) if is_durable_await(body, one)]
    remedy = "give each its own try/finally, register undos with compensate(...), or use parallel"
    for one in durable[1:]:
        inner = next(it for it in body.above(one) if isinstance(it, _TRY))
        if inner is node and isinstance(one, ast.Await):
            yield problem(body, one.value, "finally-effect", shown(one.value), remedy, _BEHIND)
    for statement in node.finalbody:
        for part in ast.walk(statement):
            if part not in body.nodes or not isinstance(part, ast.Expr):
                continue
            if isinstance(part.value, ast.Call) and _is_effect(body, part.value):
                what = shown(part.value)
                yield problem(body, part.value, "finally-effect", what, None, _PUT_ASIDE)


def _is_effect(body: Body, call: ast.Call) -> bool:
    """Whether a call that is a statement is made for an effect that outlives the run's memory."""
    target = body.resolve(call.func)
    if isinstance(target, Outside):
        return not target.name.startswith("stepwell") and target.made not in body.nodes
    base = call.func
    while isinstance(base, ast.Attribute):
        base = base.value
    if target is not None or not isinstance(base, ast.Name) or base is call.func:
        return False
    home = body.nodes[base].find(base.id)
    return home is not None and not body.is_inside(home)


def _lost(body: Body, node: ast.Try | ast.TryStar) -> Iterator[Problem]:
    """Classes that the codec cannot put together again: a StepFailed stands in for them."""
    for handler in node.handlers:
        for kind in _kinds(handler.type):
            target = body.resolve(kind)
            if isinstance(target, Outside) and target.name in _CONTROL:
                yield problem(body, kind, "lost-exception", shown(kind))
            elif isinstance(target, Class):
                why = _why_lost(body, target)
                if why is not None:
                    wrong, remedy = why
                    yield problem(body, kind, "lost-exception", shown(kind), remedy, wrong)


def _why_lost(body: Body, cls: Class) -> tuple[str, str] | None:
    scope: object = cls.scope.node
    if isinstance(scope, FUNCTION):
        return (
            "is made inside a function, so what a step raises of it arrives as StepFailed",
            "move the class to module level, or catch StepFailed",
        )
    made = body.resolver.attribute(cls, "__init__")
    if not isinstance(made, Code):
        return None
    inner = body.resolver.scopes(made.scope.source).of[made.node]
    for line in ast.walk(made.node):
        if not isinstance(line, ast.Assign) or not isinstance(line.targets[0], ast.Attribute):
            continue
        what = body.resolver.resolve(line.value, inner)
        held = "a function" if isinstance(line.value, ast.Lambda) else ""
        if isinstance(what, Outside):
            is_error = what.name.startswith("builtins.") and what.name.endswith(_ERRORS)
            held = what.name.removeprefix("builtins.") * (
                is_error or under(what.name, NOT_STORABLE)
            )
        elif isinstance(what, Instance) and _is_error(body, what.of):
            held = what.of.node.name
        if held:
            attribute = shown(line.targets[0])
            return (
                f"keeps {held} in {attribute}, which cannot be stored, so it arrives as StepFailed",
                f"keep text or numbers in {attribute}, or catch StepFailed",
            )
    return None


def _is_error(body: Body, cls: Class, depth: int = 0) -> bool:
    for base in cls.node.bases if depth < 10 else ():
        found = body.resolver.resolve(base, cls.scope)
        if isinstance(found, Outside) and found.name.endswith(_ERRORS):
            return True
        if isinstance(found, Class) and _is_error(body, found, depth + 1):
            return True
    return False
