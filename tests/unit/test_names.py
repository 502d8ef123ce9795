"""No class and no module of the package has the name of another one."""

import ast
from collections import Counter
from collections.abc import Iterable

from conftest import ROOT

PACKAGE = ROOT / "build" / "imgbuild"


def _repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def test_module_names_are_unique() -> None:
    stems = [path.stem for path in PACKAGE.rglob("*.py") if path.stem != "__init__"]
    assert _repeated(stems) == []


def test_class_names_are_unique() -> None:
    trees = [ast.parse(path.read_bytes()) for path in PACKAGE.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    assert _repeated(node.name for node in nodes if isinstance(node, ast.ClassDef)) == []


def test_a_repeated_name_is_found() -> None:
    assert _repeated(["Stage", "Image", "Stage"]) == ["Stage"]
