"""The packages import one another as CONTRIBUTING.md says, and the outside is where it says."""

import ast
import re
from functools import cache

import pytest
from conftest import ROOT

PACKAGE = ROOT / "build" / "imgbuild"
#: What starts programs, or opens connections.
OUTSIDE = {"docker", "http", "requests", "socket", "ssl", "subprocess", "urllib3"}
_PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def _listed(start: str) -> list[str]:
    """Return the packages and modules that a sentence of the page names after ``start``."""
    sentence = _PAGE.partition(start)[2].partition(". ")[0]
    return re.findall(r"`([\w/.]+)`", sentence)


ORDER = [name.rstrip("/") for name in _listed("imports one after it:")]
EDGE = tuple(_listed("start programs or open connections:"))
CODE = {
    path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
}


@cache
def _imported(code: str) -> tuple[str, ...]:
    """Return the modules that a module imports, wherever it does, but not those of types alone."""
    tree = ast.parse(code)
    tests = (node for node in ast.walk(tree) if isinstance(node, ast.If))
    typing = [node for node in tests if ast.unparse(node.test) == "TYPE_CHECKING"]
    left_out = {id(one) for node in typing for one in ast.walk(node)}
    found: list[str] = []
    for node in ast.walk(tree):
        if id(node) not in left_out and isinstance(node, ast.ImportFrom):
            found.append(str(node.module))
        elif id(node) not in left_out and isinstance(node, ast.Import):
            found += (one.name for one in node.names)
    return tuple(found)


def _against_the_order(code: dict[str, str]) -> list[str]:
    """Return the imports of packages that come later."""
    return [
        f"{path} imports {module}"
        for path, text in code.items()
        for module in _imported(text)
        if module.startswith("imgbuild.")
        and not _allowed(path.partition("/")[0], module.split(".")[1])
    ]


def _allowed(package: str, other: str) -> bool:
    if package.endswith(".py") or other not in ORDER:
        return True
    if package in ORDER:
        return ORDER.index(other) <= ORDER.index(package)
    return other not in {"publishing", "ci", "cli"}


def _not_at_the_edge(code: dict[str, str]) -> list[str]:
    """Return who touches the outside, and is not listed."""
    return [
        f"{path} imports {module}"
        for path, text in code.items()
        for module in _imported(text)
        if module.partition(".")[0] in OUTSIDE and not path.startswith(EDGE)
    ]


def test_the_page_is_understood() -> None:
    assert (ORDER[0], ORDER[-1], len(ORDER)) == ("matrix", "cli", 11)
    assert {*ORDER} <= {path.name for path in PACKAGE.iterdir()}
    assert all((PACKAGE / one).exists() for one in EDGE)


def test_no_package_imports_a_later_one() -> None:
    assert _against_the_order(CODE) == []


def test_only_the_edge_touches_the_outside() -> None:
    assert _not_at_the_edge(CODE) == []


def test_whoever_is_listed_touches_the_outside() -> None:
    touching = {
        path
        for path, text in CODE.items()
        if any(module.partition(".")[0] in OUTSIDE for module in _imported(text))
    }
    assert [one for one in EDGE if not any(path.startswith(one) for path in touching)] == []


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("plan/x.py", "from imgbuild.build.gate import x", _against_the_order),
        ("engine/x.py", "def f():\n    import imgbuild.cli.options", _against_the_order),
        ("sizes/x.py", "from imgbuild.ci.choice import x", _against_the_order),
        ("plan/x.py", "def f():\n    from docker.errors import x", _not_at_the_edge),
        ("publishing/x.py", "import subprocess", _not_at_the_edge),
    ],
)
def test_what_breaks_a_rule_is_found(path: str, text: str, fault: object) -> None:
    assert callable(fault)
    assert len(fault({path: text})) == 1
    assert fault({path: "from typing import TYPE_CHECKING\n"}) == []
    guarded = "\n".join(f"    {line}" for line in text.splitlines())
    assert fault({path: f"if TYPE_CHECKING:\n{guarded}"}) == []
