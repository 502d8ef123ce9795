"""A revision read from git's objects, what is said where git does not have it, hostile ones."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.project import INSTALLED, Project
from imgbuild.maintain.revision import PARTS, open_revision, resolve_commit

FILE, LINK, FOLDER = "100644", "120000", "40000"
NAMES = ("with blank", "ümlaut", 'quo"te', "new\nline")


def git(root: Path, *arguments: str, content: bytes = b"") -> str:
    """Return what git prints, without the user's configuration, hooks or identity."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    result = subprocess.run(
        ["git", "-C", str(root), *identity, *arguments],
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
        input=content,
        capture_output=True,
        check=True,
    )
    return result.stdout.decode().strip()


def commit(root: Path, message: str = "another") -> str:
    """Commit everything; return the commit."""
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a small repository with two commits."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = tmp_path / "repository"
    (root / "images" / "files").mkdir(parents=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    (root / "matrix.yaml").write_text("old\n", encoding="utf-8")
    for name in NAMES:
        (root / "images" / name).write_bytes(name.encode() + b"\0\n")
    (root / "images" / "run").write_text("#!\n", encoding="utf-8")
    (root / "images" / "run").chmod(0o755)
    (root / "images" / "link").symlink_to("run")
    (root / "images" / "empty").touch()
    (root / "other").write_text("not wanted\n", encoding="utf-8")
    commit(root)
    (root / "matrix.yaml").write_text("new\n", encoding="utf-8")
    commit(root)
    return root


@contextmanager
def _at(root: Path, reference: str) -> Iterator[Path]:
    with open_revision(Project(root), reference) as project:
        yield project.root


def test_files_as_they_were(root: Path) -> None:
    with _at(root, "HEAD~1") as folder:
        assert (folder / "matrix.yaml").read_text(encoding="utf-8") == "old\n"
        for name in NAMES:
            assert (folder / "images" / name).read_bytes() == name.encode() + b"\0\n"
        assert (folder / "images" / "run").stat().st_mode & 0o777 == 0o755
        assert (folder / "images" / "empty").stat().st_mode & 0o777 == 0o644
        assert (folder / "images" / "link").readlink() == Path("run")
        assert {path.name for path in folder.iterdir()} <= {*PARTS}
    assert not folder.exists()
    assert (root / "matrix.yaml").read_text(encoding="utf-8") == "new\n"


def test_any_name_of_a_commit_and_of_none(root: Path) -> None:
    head = git(root, "rev-parse", "HEAD")
    git(root, "tag", "--annotate", "--message", "1", "v1")
    for reference in ("HEAD", "main", "v1", head, head[:10], "HEAD^{commit}"):
        assert resolve_commit(root, reference) == head
    for reference in ("nowhere", "HEAD~9", "--help", "--upload-pack=x", "a b"):
        with pytest.raises(InputError, match=r"no such revision.*git fetch"):
            resolve_commit(root, reference)


def test_no_repository_another_users_and_no_git(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(InputError, match="is not a Git checkout"):
        resolve_commit(tmp_path, "HEAD")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(InputError, match=f"safe.directory {root}`"):
        resolve_commit(root, "HEAD")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="git is not installed"):
        resolve_commit(tmp_path, "HEAD")


def test_a_shallow_clone_says_how_to_deepen_it(root: Path, tmp_path: Path) -> None:
    clone = tmp_path / "shallow"
    git(root, "clone", "--quiet", "--depth=1", root.as_uri(), str(clone))
    with pytest.raises(InputError, match=r"This clone is shallow.*git fetch --unshallow"):
        resolve_commit(clone, "HEAD~1")
    with _at(clone, "HEAD") as folder:
        assert (folder / "matrix.yaml").read_text(encoding="utf-8") == "new\n"


def test_a_checkout_in_a_folder_of_a_repository(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    (whole / "part").mkdir(parents=True)
    git(whole, "init", "--quiet")
    (whole / "matrix.yaml").write_text("another's\n", encoding="utf-8")
    (whole / "part" / "matrix.yaml").write_text("mine\n", encoding="utf-8")
    commit(whole)
    with _at(whole / "part", "HEAD") as folder:
        assert (folder / "matrix.yaml").read_text(encoding="utf-8") == "mine\n"


def test_fetched_commit_is_not_in_history(root: Path) -> None:
    """It may be anybody's, which nobody has reviewed."""
    first = git(root, "rev-parse", "HEAD")
    git(root, "checkout", "--quiet", "-b", "review")
    other = commit(root)
    git(root, "checkout", "--quiet", "main")
    now = commit(root, "next")
    for known in (first, now):
        with _at(root, known) as folder:
            assert (folder / "matrix.yaml").is_file()
    for reference in (other, "review"):
        with (
            pytest.raises(InputError, match=f"{other} is not in the history"),
            _at(root, reference),
        ):
            pytest.fail("it was read")


def test_installed_family_has_no_history() -> None:
    with pytest.raises(InputError, match="have no history"), _at(INSTALLED, "HEAD"):
        pytest.fail("there is nothing to read")


def test_an_object_that_is_missing(root: Path) -> None:
    blob = git(root, "rev-parse", "HEAD:images/run")
    (root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with (
        pytest.raises(InputError, match="git cannot read the files of this revision"),
        _at(root, "HEAD"),
    ):
        pytest.fail("nothing can be compared with half a revision")


def _object(root: Path, kind: str, content: bytes) -> bytes:
    """Write an object that git itself would refuse to make; return its name's bytes."""
    words = ("hash-object", "-t", kind, "-w", "--literally", "--stdin")
    return bytes.fromhex(git(root, *words, content=content))


def _tree(root: Path, *entries: tuple[str, str, bytes]) -> bytes:
    parts = (f"{mode} {name}\0".encode() + digest for mode, name, digest in entries)
    return _object(root, "tree", b"".join(parts))


def _commit(root: Path, *images: tuple[str, str, bytes]) -> str:
    """Make the branch a commit with a folder of images that has these entries."""
    matrix = (FILE, "matrix.yaml", _object(root, "blob", b"x"))
    top = _tree(root, (FOLDER, "images", _tree(root, *images)), matrix)
    made = git(root, "commit-tree", "-m", "x", top.hex())
    git(root, "update-ref", "refs/heads/main", made)
    return made


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
    made, refused = _commit(root, *entries[how]), "cannot read the files of this revision|leads out"
    with pytest.raises(InputError, match=refused), _at(root, made):
        pass
    assert [*tmp_path.rglob("escaped")] == []


def test_a_link_to_elsewhere_is_only_a_link(root: Path) -> None:
    link = _object(root, "blob", b"../../../matrix.yaml")
    with _at(root, _commit(root, (LINK, "a", link))) as folder:
        assert (folder / "images" / "a").is_symlink()
