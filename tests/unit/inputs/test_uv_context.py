"""``uv`` as a build context."""

import os
from pathlib import Path

import pytest
import uv

from imgbuild.errors import MachineError
from imgbuild.inputs.build_inputs import uv_context


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "site" / "uv"
    path.parent.mkdir()
    path.write_bytes(b"the program")
    path.chmod(0o755)
    monkeypatch.setattr(uv, "find_uv_bin", lambda: str(path))
    return path


def test_holds_the_program_and_nothing_else(tmp_path: Path, installed: Path) -> None:
    context = uv_context(tmp_path / "cache")
    assert [path.name for path in context.iterdir()] == ["uv"]
    assert (context / "uv").read_bytes() == installed.read_bytes()
    assert os.access(context / "uv", os.X_OK)


@pytest.mark.usefixtures("installed")
def test_is_reused_unless_damaged(tmp_path: Path) -> None:
    context = uv_context(tmp_path / "cache")
    number = context.stat().st_ino
    assert uv_context(tmp_path / "cache").stat().st_ino == number
    (context / "more").touch()
    assert [path.name for path in uv_context(tmp_path / "cache").iterdir()] == ["uv"]


def test_another_program_is_another_context(tmp_path: Path, installed: Path) -> None:
    before = uv_context(tmp_path / "cache")
    installed.unlink()
    installed.write_bytes(b"the next program")
    installed.chmod(0o755)
    assert uv_context(tmp_path / "cache") != before


def test_package_without_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise FileNotFoundError("uv")

    monkeypatch.setattr(uv, "find_uv_bin", missing)
    with pytest.raises(MachineError, match="pip install --force-reinstall uv=="):
        uv_context(tmp_path / "cache")


def test_other_bytes_of_the_same_size_are_damage(
    tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "hardlink_to", _refuse)
    stored = uv_context(tmp_path / "cache") / "uv"
    whole = stored.read_bytes()
    stored.write_bytes(whole[::-1])
    assert (uv_context(tmp_path / "cache") / "uv").read_bytes() == whole == installed.read_bytes()


def _refuse(*_: object) -> None:
    raise OSError
