"""pytest runs every file of tests: it skips folders by their names, such as build, unless told."""

from fnmatch import fnmatch

import pytest

from support.project_copy import ROOT


def test_pytest_enters_every_folder_with_tests(pytestconfig: pytest.Config) -> None:
    skipped = pytestconfig.getini("norecursedirs")
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(folders) > 10
    for folder in folders:
        assert not [part for part in folder.parts if any(fnmatch(part, name) for name in skipped)]
