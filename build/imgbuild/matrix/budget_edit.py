"""New budgets in the text of ``matrix.yaml``: nothing else of it changes, comments included."""

from collections.abc import Mapping
from typing import NamedTuple

import yaml

from imgbuild.errors import InputError

#: A row, by its index in ``images``, and its budgets in MB by variant.
Budgets = Mapping[int, Mapping[str, int]]


class _Edit(NamedTuple):
    """``text`` in place of what stands from ``start`` to ``end``."""

    start: int
    end: int
    text: str


def with_budgets(text: str, budgets: Budgets) -> str:
    """Return a valid matrix with other budgets; a variant that is not named keeps its own.

    Raises:
        InputError: the file is written in a way that this cannot edit.

    """
    rows = _value(yaml.compose(text, Loader=yaml.SafeLoader), "images")
    if not isinstance(rows, yaml.SequenceNode):
        raise InputError("matrix.yaml has no list of images.")
    edits = [_edit(text, rows.value[index], budgets[index]) for index in budgets]
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for name, value in pairs if name.value == key), None)


def _edit(text: str, row: yaml.Node, budgets: Mapping[str, int]) -> _Edit:
    old = _value(row, "budget")
    before = {name.value: value.value for name, value in old.value} if old else {}
    both = {**before, **{name: str(size) for name, size in budgets.items()}}
    new = "{" + ", ".join(f"{name}: {both[name]}" for name in sorted(both)) + "}"
    if isinstance(old, yaml.MappingNode) and old.flow_style:
        return _Edit(old.start_mark.index, old.end_mark.index, new)
    if old is not None or not isinstance(row, yaml.MappingNode):
        line = row.start_mark.line + 1
        raise InputError(f"matrix.yaml:{line}: write this row's budget as {new} by hand.")
    last = _last(row.value[-1][1]).end_mark.index
    if row.flow_style:
        return _Edit(last, last, f", budget: {new}")
    end = _end_of_line(text, last)
    return _Edit(end, end, f"\n{' ' * row.value[-1][0].start_mark.column}budget: {new}")


def _last(node: yaml.Node) -> yaml.Node:
    """Return the last value in a row: the mark of a block's end is behind the comments after it."""
    if not isinstance(node, yaml.CollectionNode) or node.flow_style:
        return node
    inner = node.value[-1]
    return _last(inner[1] if isinstance(inner, tuple) else inner)


def _end_of_line(text: str, index: int) -> int:
    found = text.find("\n", index)
    return len(text) if found < 0 else found
