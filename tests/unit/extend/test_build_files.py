"""The build context of an extension: the files that it copies, and nothing else of the folder."""

import os
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from imgbuild.extend.build_files import copy_build_files, source_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with sources, a private file beside them, and links out of it."""
    files = {
        "work/src/app.py": "app",
        "work/src/sub/data": "data",
        "work/dist/own-1.0-py3-none-any.whl": "wheel",
        "work/private": "private",
        "outside/secret": "secret",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    work = tmp_path / "work"
    (work / "out").symlink_to(tmp_path / "outside")
    (work / "secret").symlink_to("../outside/secret")
    (work / "inside").symlink_to("src")
    (work / "src" / "link").symlink_to("../../outside/secret")
    os.mkfifo(work / "src" / "fifo")
    return work


def copied(folder: Path, target: Path, *sources: str) -> list[str]:
    target.mkdir(exist_ok=True)
    copy_build_files(sources, folder, target)
    return sorted(str(path.relative_to(target)) for path in target.rglob("*"))


def test_context_has_the_sources_alone(folder: Path, tmp_path: Path) -> None:
    wheel = "dist/own-1.0-py3-none-any.whl"
    found = copied(folder, tmp_path / "context", "src", "src/app.py", wheel)
    link = tmp_path / "context" / "src" / "link"
    expected = ["dist", wheel, "src", "src/app.py", "src/link", "src/sub", "src/sub/data"]
    assert found == expected
    assert link.readlink() == Path("../../outside/secret"), "the link, not the file"


def test_context_has_the_dockerignore(folder: Path, tmp_path: Path) -> None:
    (folder / ".dockerignore").write_text("**/data\n", encoding="utf-8")
    assert ".dockerignore" in copied(folder, tmp_path / "context", "src")


def test_context_resolves_a_link_within_the_folder(folder: Path, tmp_path: Path) -> None:
    assert "inside/sub/data" in copied(folder, tmp_path / "context", "./inside/")


@pytest.mark.parametrize("source", ["secret", "out/secret", "out", "inside/../../outside", "none"])
def test_source_outside_the_folder_is_refused(folder: Path, tmp_path: Path, source: str) -> None:
    (tmp_path / "context").mkdir()
    with pytest.raises(InputError, match=f"copy {source}: "):
        source_path(source, folder)
    with pytest.raises(InputError, match=f"copy {source}: "):
        copy_build_files([source], folder, tmp_path / "context")
    assert [*(tmp_path / "context").iterdir()] == []


def test_dockerignore_outside_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / ".dockerignore").symlink_to("../outside/secret")
    (tmp_path / "context").mkdir()
    with pytest.raises(InputError, match=r"\.dockerignore: a symbolic link"):
        copy_build_files(["src"], folder, tmp_path / "context")


def test_context_below_its_source_is_not_copied(folder: Path) -> None:
    found = copied(folder, folder / "context", ".")
    assert "private" in found
    assert "context" not in found
