"""Names that the package does not use, each with the one that it has instead."""

import ast
from collections.abc import Iterator

from conftest import ROOT

#: A participle is no thing, and some of these had several meanings.
INSTEAD = {
    "agree": "requirements, candidates",
    "approved": "approvals, candidates",
    "begun": "running, started",
    "busy": "has_work",
    "chosen": "candidates, options",
    "ended": "finished, must_stop",
    "given": "options, overrides",
    "opened": "project, checkout",
    "places": "slots, locations",
    "settled": "settings, project",
    "take": "submit, pull, use, apply",
    "target_of": "suite_target",
    "wanted": "requirements, requested",
}


def names_given(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and name of each function, class, parameter, field and variable."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def test_the_package_has_the_names_of_the_field() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}; there is: {INSTEAD[name]}"
        for path in sorted((ROOT / "build").rglob("*.py"))
        for line, name in names_given(path.read_text(encoding="utf-8"))
        if name in INSTEAD
    ]
    assert found == []
