"""The copy of a repository: within limits, and without following links."""

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from imgbuild.adopt import code_archive
from imgbuild.adopt.code_archive import CodeArchive


def archive(folder: Path) -> tuple[dict[str, tarfile.TarInfo], CodeArchive, tarfile.TarFile]:
    stream = io.BytesIO()
    with CodeArchive(stream, "/work") as made:
        made.add_repository(str(folder))
    read = tarfile.open(fileobj=io.BytesIO(stream.getvalue()))  # noqa: SIM115 - in memory
    return {member.name: member for member in read.getmembers()}, made, read


def text_of(read: tarfile.TarFile, name: str) -> bytes:
    file = read.extractfile(name)
    assert file
    return file.read()


def test_archive_has_files_that_all_may_write(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/main.py").write_text("text")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o700)
    members, made, read = archive(tmp_path)
    assert members.keys() == {"work", "work/a", "work/a/b", "work/a/b/main.py", "work/run.sh"}
    assert made.names == {"a", "a/b", "a/b/main.py", "run.sh"}
    assert text_of(read, "work/a/b/main.py") == b"text"
    assert members["work/a/b"].mode == 0o777
    assert members["work/a/b/main.py"].mode == 0o666
    assert members["work/run.sh"].mode & stat.S_IXUSR


def test_archive_leaves_out_git_and_environments(tmp_path: Path) -> None:
    for name in (".git", "__pycache__", "node_modules", "env"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    (tmp_path / "env/pyvenv.cfg").write_text("")
    _, made, _ = archive(tmp_path)
    assert made.names == {"env"}
    assert "virtual environment" in made.notes[0]


def test_archive_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    (root := tmp_path / "root").mkdir()
    (root / "data").mkdir()
    (root / "near").symlink_to("data")
    (root / "data/up").symlink_to("../data")
    (root / "out").symlink_to("../outside")
    (root / "absolute").symlink_to(tmp_path / "outside/secret")
    (root / "data/out").symlink_to("../../outside")
    members, made, _ = archive(root)
    assert made.names == {"data", "near", "data/up"}
    assert members["work/near"].issym()
    assert len(made.notes) == 3
    assert all("link" in note for note in made.notes)


def test_archive_leaves_out_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "main.py").write_text("")
    _, made, _ = archive(tmp_path)
    assert made.names == {"main.py"}
    assert made.notes == ["pipe is no file"]


def test_archive_keeps_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large").write_bytes(b"x" * 100)
    for name in "abcdef":
        (tmp_path / name).write_bytes(b"x" * 40)
    deep = tmp_path.joinpath(*["deep"] * 5)
    deep.mkdir(parents=True)
    (deep / "file").write_text("")
    monkeypatch.setattr(code_archive, "FILE_BYTES", 50)
    monkeypatch.setattr(code_archive, "ALL_BYTES", 100)
    monkeypatch.setattr(code_archive, "DEPTH", 3)
    _, made, _ = archive(tmp_path)
    assert made.names == {"a", "b", "deep", "deep/deep", "deep/deep/deep"}
    assert "large is not copied: 100 bytes" in made.notes
    monkeypatch.setattr(code_archive, "ENTRIES", 3)
    _, made, _ = archive(tmp_path)
    assert len(made.names) <= 3
    assert sum("more files" in note for note in made.notes) <= 1


def test_archive_takes_any_name(tmp_path: Path) -> None:
    name = os.fsdecode(b"bad\xff name\n")
    (tmp_path / name).write_text("x")
    (tmp_path / ("ü" * 80)).write_text("y")
    members, _, _ = archive(tmp_path)
    assert members.keys() == {"work", f"work/{name}", f"work/{'ü' * 80}"}


def test_archive_fills_a_file_that_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12")
    with path.open("rb") as file:
        reader = code_archive._Exactly(file, 5)
        assert reader.read(3) + reader.read(4) == b"12\0\0\0"


def test_archive_notes_unreadable_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a").mkdir()
    stream = io.BytesIO()
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with CodeArchive(stream, "/work") as made, monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        made._add_entries(descriptor, "", 0)
    os.close(descriptor)
    assert made.notes == ["a: Permission denied", "file: Permission denied"]


def test_archive_ends_at_its_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "main.py").write_text("")
    monkeypatch.setattr(code_archive, "SECONDS", -1)
    _, made, _ = archive(tmp_path)
    assert made.names == set()
    assert "more files" in made.notes[0]


def test_archive_ends_with_its_stream(tmp_path: Path) -> None:
    class Closed(io.BytesIO):
        def write(self, _: object) -> int:
            raise BrokenPipeError

    (tmp_path / "large").write_bytes(b"x" * 100_000)
    with pytest.raises(BrokenPipeError), CodeArchive(Closed(), "/work") as made:
        made.add_repository(str(tmp_path))
