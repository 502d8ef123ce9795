"""The bounded reader of somebody's repository."""

import os
import socket
from pathlib import Path

import pytest

from imgbuild.adopt import repository as module
from imgbuild.adopt.repository import (
    Evidence,
    decode_text,
    open_repository,
    read_regular_file,
)
from imgbuild.core.errors import InputError


def _write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_evidence_is_written_with_its_line() -> None:
    assert str(Evidence("README.md", 14)) == "README.md:14"
    assert str(Evidence("README.md")) == "README.md"


def test_repository_lists_regular_files(tmp_path: Path) -> None:
    for name in ("b/c.py", "a.py", ".git/config", "b/__pycache__/c.pyc", "node_modules/x.js"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    repository = open_repository(tmp_path)
    assert repository.files == ("a.py", "b/c.py")
    assert repository.name == tmp_path.name
    assert repository.notes == []


def test_repository_skips_environments_only(tmp_path: Path) -> None:
    for name in ("env/game.py", "venv/pyvenv.cfg", "venv/lib/x.py", "conda/conda-meta/x.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert open_repository(tmp_path).files == ("env/game.py",)
    (tmp_path / "pyvenv.cfg").touch()
    assert "env/game.py" in open_repository(tmp_path).files


@pytest.mark.parametrize("name", ["missing", "file", "file/inner", "a\0b"])
def test_repository_must_be_a_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError):
        open_repository(tmp_path / name)


def test_repository_follows_no_links(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.py").write_text("secret")
    code = tmp_path / "code"
    code.mkdir()
    (code / "link.py").symlink_to(secret / "key.py")
    (code / "folder").symlink_to(secret)
    (code / "loop").symlink_to(code)
    (code / "device.py").symlink_to("/dev/zero")
    repository = open_repository(code)
    assert repository.files == ()
    assert len(repository.notes) == 4
    assert repository.read_text("link.py") == ""
    assert repository.read_text("folder/key.py") == ""
    assert repository.read_text("../secret/key.py") == ""
    assert repository.read_text(str(secret / "key.py")) == ""


def test_repository_opens_no_pipes_or_sockets(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket.py"))
    try:
        repository = open_repository(tmp_path)
        assert repository.files == ()
        assert len(repository.notes) == 2
        assert repository.read_text("pipe.py") == ""
    finally:
        listener.close()


def test_repository_reads_no_swapped_link(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.py").write_text("x")
    repository = open_repository(tmp_path)
    (tmp_path / "a" / "b.py").unlink()
    (tmp_path / "a").rmdir()
    (tmp_path / "a").symlink_to("/etc")
    assert repository.files == ("a/b.py",)
    assert repository.read_text("a/b.py") == ""
    with pytest.raises(OSError, match="a"):
        read_regular_file(tmp_path, "a/passwd", 1000)


def test_repository_survives_unreadable_names(tmp_path: Path) -> None:
    for name in (b"\xff\xfe.py", b"a\nb.py", b"\x1b[31m.py", b"good.py"):
        (tmp_path / os.fsdecode(name)).touch()
    repository = open_repository(tmp_path)
    assert repository.files == ("good.py",)
    assert all(note.isprintable() for note in repository.notes)


def test_repository_files_have_limits(tmp_path: Path) -> None:
    with (tmp_path / "large.py").open("wb") as file:
        file.truncate(1 << 30)
    with (tmp_path / "large.ipynb").open("wb") as file:
        file.truncate(1 << 30)
    repository = open_repository(tmp_path)
    for _ in range(2):
        assert repository.read_text("large.py") == ""
        assert repository.read_text("large.ipynb") == ""
    assert len(repository.notes) == 2


def test_file_of_unknown_size_has_a_limit() -> None:
    with pytest.raises(ValueError, match="larger than 10 bytes"):
        read_regular_file(Path(f"/proc/{os.getpid()}"), "status", 10)


def test_repository_keeps_no_text_of_notebooks(tmp_path: Path) -> None:
    _write(tmp_path, **{"a.ipynb": "1", "a.py": "1"})
    repository = open_repository(tmp_path)
    assert [repository.read_text(path) for path in repository.files] == ["1", "1"]
    _write(tmp_path, **{"a.ipynb": "2", "a.py": "2"})
    assert [repository.read_text(path) for path in repository.files] == ["2", "1"]


def test_repository_has_a_limit_for_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 10)
    _write(tmp_path, a="12345678", b="12345678", c="1")
    repository = open_repository(tmp_path)
    assert [repository.read_text(name) for name in "abc"] == ["12345678", "", "1"]
    assert repository.read_text("a") == "12345678"


def test_repository_depth_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEEPEST", 2)
    _write(tmp_path, a__b__c="x", a__b__c2__d="x")
    repository = open_repository(tmp_path)
    assert repository.files == ("a/b/c",)
    assert repository.notes


def test_repository_of_many_levels_is_read(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(600):  # longer than the longest path of the system
        os.mkdir("deep-folder", dir_fd=here)
        inner = os.open("deep-folder", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert open_repository(tmp_path).files == ()


def test_repository_data_hides_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OTHERS", 5)
    monkeypatch.setattr(module, "MOST_FILES", 20)
    for number in range(50):
        _write(tmp_path, **{f"data__{number}.jpg": ""})
    _write(tmp_path, src__train="", **{"src__a.py": "", "data__z.py": ""})
    repository = open_repository(tmp_path)
    assert {"src/a.py", "src/train", "data/z.py"} < {*repository.files}
    assert len(repository.files) == 8


def test_repository_files_and_entries_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 10)
    for number in range(30):
        _write(tmp_path, **{f"{number}.py": ""})
    assert len(open_repository(tmp_path).files) == 10
    monkeypatch.setattr(module, "MOST_ENTRIES", 5)
    repository = open_repository(tmp_path)
    assert len(repository.files) == 5
    assert repository.notes


@pytest.mark.parametrize(("name", "limit"), [("LARGEST_FOLDER", 3), ("WALK_SECONDS", -1)])
def test_repository_walk_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, limit: int
) -> None:
    monkeypatch.setattr(module, name, limit)
    _write(tmp_path, a="", b__c="", b__d="", b__e="", b__f="")
    repository = open_repository(tmp_path)
    assert 1 <= len(repository.files) < 5
    assert len(repository.notes) == 1


def test_repository_notes_are_limited(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number}").symlink_to("nowhere")
    (tmp_path / "empty").mkdir()
    repository = open_repository(tmp_path)
    assert len(repository.notes) == 101
    repository = open_repository(tmp_path / "empty")
    repository.note("x")
    repository.note("x")
    assert repository.notes == ["x"]


def test_repository_matches_names_nearest_first(tmp_path: Path) -> None:
    _write(tmp_path, **{"b__README.md": "", "Readme.rst": "", "a__readme": "", "train.py": ""})
    repository = open_repository(tmp_path)
    assert repository.match("readme*") == ("Readme.rst", "a/readme", "b/README.md")
    assert repository.match("*.rst", "*.py") == ("Readme.rst", "train.py")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"a\r\nb\rc\n", "a\nb\nc\n"),
        (b"\xef\xbb\xbfx = 1", "x = 1"),
        ("tensorflow==1.8\n".encode("utf-16"), "tensorflow==1.8\n"),
        ("ä".encode("latin-1"), "ä"),
        ("# coding: cp1251\nж".encode("cp1251"), "# coding: cp1251\nж"),
        ("#!/x\n# -*- coding: gbk -*-\n中".encode("gbk"), "#!/x\n# -*- coding: gbk -*-\n中"),
        (b"# coding: zlib\n\xff", "# coding: zlib\nÿ"),
        (b"# coding: idna\n\xff", "# coding: idna\nÿ"),
        (b"# coding: ../../x\n\xff", "# coding: ../../x\nÿ"),
        (b"# coding: unicode_escape\n\xff", "# coding: unicode_escape\nÿ"),
        (b"# coding: gbk\n\x81", "# coding: gbk\n\ufffd"),
        (b"\n\n# coding: cp1251\n\xe6", "\n\n# coding: cp1251\næ"),
        (b"", ""),
    ],
)
def test_text_is_decoded(content: bytes, text: str) -> None:
    assert decode_text(content, is_python=True) == text


def test_text_without_text_has_a_note(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "b.txt").write_bytes(b"x")
    repository = open_repository(tmp_path)
    assert repository.read_text("a.py") == ""
    assert repository.read_text("b.txt") == "x"
    assert len(repository.notes) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_repository_unreadable_file_has_a_note(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch(mode=0)
    repository = open_repository(tmp_path)
    assert repository.read_text("a.py") == ""
    assert repository.notes


def test_repository_names_empty_submodules(tmp_path: Path) -> None:
    text = '[submodule "a"]\n\tpath = lib/a\n[submodule "b"]\n\tpath = b\n\turl = ../b.git\n'
    (tmp_path / ".gitmodules").write_text(text)
    (tmp_path / "b").mkdir()
    (tmp_path / "lib" / "a").mkdir(parents=True)
    (tmp_path / "lib" / "a" / "net.py").write_text("")
    assert open_repository(tmp_path).empty_submodules() == ("b",)
    (tmp_path / ".gitmodules").unlink()
    assert open_repository(tmp_path).empty_submodules() == ()
