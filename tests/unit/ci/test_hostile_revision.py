"""A revision that somebody made by hand: nothing of it is written outside of its folder."""

import os
from pathlib import Path

import pytest
from git_checkout import git

from imgbuild.ci.changed import revision
from imgbuild.errors import InputError
from imgbuild.project import Project

FILE, LINK, FOLDER = "100644", "120000", "40000"


def _object(root: Path, kind: str, content: bytes) -> bytes:
    """Write an object that git itself would refuse to make; return its name's bytes."""
    words = ("hash-object", "-t", kind, "-w", "--literally", "--stdin")
    return bytes.fromhex(git(root, *words, content=content))


def _tree(root: Path, *entries: tuple[str, str, bytes]) -> bytes:
    parts = (f"{mode} {name}\0".encode() + digest for mode, name, digest in entries)
    return _object(root, "tree", b"".join(parts))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet")
    return root


def _commit(root: Path, *images: tuple[str, str, bytes]) -> str:
    """Commit a folder of images that has these entries."""
    matrix = (FILE, "matrix.yaml", _object(root, "blob", b"x"))
    top = _tree(root, (FOLDER, "images", _tree(root, *images)), matrix)
    return git(root, "commit-tree", "-m", "x", top.hex())


@pytest.mark.parametrize("how", ["parent", "link", "absolute"])
def test_what_leads_out_of_a_revision_is_refused(root: Path, tmp_path: Path, how: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    text, link = (_object(root, "blob", one) for one in (b"x", os.fsencode(outside)))
    inner = _tree(root, (FILE, "escaped", text))
    entries = {
        "parent": [(FOLDER, "..", _tree(root, (FOLDER, "..", inner)))],
        "link": [(LINK, "a", link), (FOLDER, "a", inner)],
        "absolute": [(FILE, f"{outside}/escaped", text)],
    }
    made, refused = _commit(root, *entries[how]), "cannot read the files there|leads out"
    with pytest.raises(InputError, match=refused), revision(Project(root), made):
        pass
    assert [*tmp_path.rglob("escaped")] == []


def test_a_link_to_elsewhere_is_only_a_link(root: Path) -> None:
    link = _object(root, "blob", b"../../../matrix.yaml")
    with revision(Project(root), _commit(root, (LINK, "a", link))) as made:
        assert (made.root / "images" / "a").is_symlink()
