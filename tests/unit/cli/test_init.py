"""``imgbuild init``: the whole family or nothing, and never over what is there."""

import shutil
from pathlib import Path

import pytest

from imgbuild.cli.init_command import copy_family
from imgbuild.core.project import PARTS
from support.project_copy import ROOT, run_main


def test_every_file_is_the_new_owner_s_to_change(tmp_path: Path) -> None:
    """Scripts stay programs, and what nobody could write is written."""
    source, target = tmp_path / "source", tmp_path / "new" / "family"
    copy_family(ROOT, source)
    (source / "matrix.yaml").chmod(0o400)
    script = next((source / "images" / "files").rglob("*.py"))
    script.chmod(0o555)
    copy_family(source, target)
    assert not [*target.rglob("__pycache__")]
    assert {path.name for path in target.iterdir()} == {".gitignore", "tests"} | {
        part for part in PARTS if "/" not in part
    }
    for path in target.rglob("*"):
        if path.is_file() and path.name != ".gitignore":
            own = ROOT / path.relative_to(target)
            assert path.read_bytes() == own.read_bytes()
            program = path.name == script.name or own.stat().st_mode & 0o100
            assert path.stat().st_mode & 0o777 == (0o755 if program else 0o644)


@pytest.mark.parametrize("there", [False, True])
def test_a_failure_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    target = tmp_path / "new" / "family"
    if there:
        target.mkdir(parents=True)
    count = [0]

    def full(source: Path, place: Path) -> None:
        count[0] += 1
        if count[0] == 30:
            raise OSError(28, "No space left on device", str(place))
        place.write_bytes(source.read_bytes())

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        copy_family(ROOT, target)
    assert [*tmp_path.rglob("*")] == ([target.parent, target] if there else [])


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("full", 2, "is not empty: it contains mine."),
        ("full/mine", 2, "is not a folder."),
        (str(ROOT / "images" / "new"), 2, f"is inside {ROOT}, which is copied."),
        ("/proc/new", 3, "Cannot create /proc/new: No such file or directory (/proc/new)."),
    ],
)
def test_what_is_there_stays(tmp_path: Path, name: str, code: int, said: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("", encoding="utf-8")
    result = run_main(tmp_path, "init", name, "--project", str(ROOT))
    assert (result.returncode, said in result.stderr) == (code, True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["full", "mine"]
    assert not (ROOT / "images" / "new").exists()
