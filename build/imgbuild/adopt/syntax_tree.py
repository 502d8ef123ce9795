"""Walk over parsed code, and say in which surroundings each node stands."""

import ast
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from imgbuild.adopt.source_facts import KINDS, Kind

#: A node of a kind that its table names, which the types of `ast` cannot express.
AnyNode: TypeAlias = Any
_IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
_ATTRIBUTE_ERRORS = {"AttributeError", "Exception", "BaseException", "NameError"}


class _Context(NamedTuple):
    """The surroundings of a node: the kind of its imports, and the statements around it."""

    kind: Kind = "required"
    is_top: bool = True
    is_guarded: bool = False
    is_compared: bool = False
    is_annotation: bool = False

    def weaken(self, kind: Kind) -> "_Context":
        weaker = max(self.kind, kind, key=KINDS.index)
        return self._replace(kind=weaker, is_top=False)


class CodeNode(NamedTuple):
    """A node, its line (or cell), and its surroundings."""

    node: ast.AST
    line: int
    context: _Context


def walk_nodes(
    body: list[ast.stmt], cell: int, kinds: Container[type[ast.AST]]
) -> Iterator[CodeNode]:
    """Yield the nodes of some kinds, without recursion, whose depth hostile code would exceed.

    ``cell`` is the number of a notebook's cell, which counts as the line; 0 for a file.
    """
    stack: list[tuple[ast.AST, _Context, int]] = [(node, _Context(), 1) for node in body]
    while stack:
        node, context, line = stack.pop()
        line = getattr(node, "lineno", line)
        if type(node) in kinds:
            yield CodeNode(node, cell or line, context)
        stack += [(child, inner, line) for child, inner in _children(node, context)]


def _children(node: ast.AST, context: _Context) -> Iterator[tuple[ast.AST, _Context]]:
    """Yield the nodes below a node, and their surroundings."""
    special = _SPECIAL.get(type(node))
    if special:
        yield from special(node, context)
        return
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            for child in value:
                if isinstance(child, ast.AST):
                    yield child, context
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            yield value, context


def _with(nodes: Iterable[ast.AST | None], context: _Context) -> Iterator[tuple[ast.AST, _Context]]:
    return ((node, context) for node in nodes if node is not None)


def _function_children(node: AnyNode, context: _Context) -> Iterator[tuple[ast.AST, _Context]]:
    inner = context.weaken("wanted")
    yield from _with(node.decorator_list, context)
    arguments = node.args
    yield from _with((*arguments.defaults, *arguments.kw_defaults), context)
    named = (*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs)
    for argument in (*named, arguments.kwarg):
        if argument is not None and argument.annotation:
            yield argument.annotation, context._replace(is_annotation=True)
    if node.returns:
        yield node.returns, context._replace(is_annotation=True)
    yield from _with(node.body, inner)


def _class_children(node: AnyNode, context: _Context) -> Iterator[tuple[ast.AST, _Context]]:
    values = (keyword.value for keyword in node.keywords)
    yield from _with((*node.decorator_list, *node.bases, *values), context)
    yield from _with(node.body, context._replace(is_top=False))


def _if_children(node: AnyNode, context: _Context) -> Iterator[tuple[ast.AST, _Context]]:
    compared = context._replace(is_compared=True)
    yield node.test, compared
    holds = _judge_condition(node.test)
    if holds is None:
        yield from _with((*node.body, *node.orelse), context.weaken("wanted"))
        return
    taken, other = (node.body, node.orelse) if holds else (node.orelse, node.body)
    yield from _with(taken, context)
    yield from _with(other, context.weaken("optional"))


def _judge_condition(test: ast.expr) -> bool | None:
    """Return the value that a condition on Python's version has in Python 3; None for others."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, is_negated = test.operand, True
    else:
        is_negated = False
    holds = _judge_version(test)
    return None if holds is None else holds != is_negated


def _judge_version(test: ast.expr) -> bool | None:
    """Return the value of ``PY3``, or of a comparison with the major version, in Python 3."""
    name = last_name(test)
    if name in {"PY3", "PY2", "TYPE_CHECKING"}:
        return name == "PY3"
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left: ast.AST = test.left
    while isinstance(left, ast.Subscript):
        left = left.value
    if last_name(left) == "major" and isinstance(left, ast.Attribute):
        left = left.value
    if last_name(left) != "version_info":
        return None
    major = _major(test.comparators[0])
    if major is None:
        return None
    operator = type(test.ops[0])
    # 3 is compared with 2 or 3; another bound is on the minor version.
    answers = {ast.Eq: 3, ast.GtE: 3, ast.NotEq: 2, ast.Gt: 2}
    refusals = {ast.Lt: 3, ast.LtE: 2, ast.Eq: 2}
    if answers.get(operator) == major:
        return True
    return False if refusals.get(operator) == major else None


def _major(node: ast.expr) -> int | None:
    """Return 2 or 3 for a constant of Python's version without a minor one above 0."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    values = [part.value if isinstance(part, ast.Constant) else None for part in parts]
    if not values or any(values[1:]) or values[0] not in {2, 3}:
        return None
    return 3 if values[0] == 3 else 2


def last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _try_children(node: AnyNode, context: _Context) -> Iterator[tuple[ast.AST, _Context]]:
    fallbacks = [handler for handler in node.handlers if _catches(handler, _IMPORT_ERRORS)]
    is_optional = fallbacks and not any(gives_up(handler.body) for handler in fallbacks)
    body = context.weaken("optional") if is_optional else context
    if any(_catches(handler, _ATTRIBUTE_ERRORS) for handler in node.handlers):
        body = body._replace(is_guarded=True)
    yield from _with(node.body, body)
    inner = body.weaken("optional" if is_optional else "wanted")
    for handler in node.handlers:
        yield from _with(handler.body, inner)
    yield from _with(node.orelse, inner if is_optional else context)
    yield from _with(node.finalbody, context)


def _catches(handler: ast.ExceptHandler, names: set[str]) -> bool:
    caught = handler.type
    types = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(each is None or last_name(each) in names for each in types)


def gives_up(body: Sequence[ast.stmt]) -> bool:
    """Tell whether statements end the program."""
    last = body[-1]
    if isinstance(last, ast.Raise):
        return True
    is_call = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)
    return is_call and last_name(last.value.func) in {"exit", "_exit", "quit"}  # type: ignore[attr-defined]  # tested above


def _compare_children(node: AnyNode, context: _Context) -> Iterator[tuple[ast.AST, _Context]]:
    compared = context._replace(is_compared=True)
    return _with((node.left, *node.comparators), compared)


def _annotated_children(node: AnyNode, context: _Context) -> Iterator[tuple[ast.AST, _Context]]:
    # Python does not evaluate the annotations of local variables.
    return _with((node.target, node.value), context)


_SPECIAL: dict[type[ast.AST], Any] = {
    ast.FunctionDef: _function_children,
    ast.AsyncFunctionDef: _function_children,
    ast.ClassDef: _class_children,
    ast.If: _if_children,
    ast.Try: _try_children,
    ast.TryStar: _try_children,
    ast.Compare: _compare_children,
    ast.AnnAssign: _annotated_children,
}


def literal_text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
