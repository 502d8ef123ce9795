"""A PATH with the programs of a test, and a user without a home."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing name a home folder, nor a folder in its place."""

    def unknown(_: int) -> None:
        raise KeyError("uid not found")

    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "DOCKER_CONFIG"):
        monkeypatch.setenv(name, "")  # to be set back
        monkeypatch.delenv(name)
    monkeypatch.setattr("pwd.getpwuid", unknown)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return how to put a shell script on a PATH that has no other program."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("imgbuild.process._SYSTEM_FOLDERS", str(folder))

    def make(name: str, script: str = "exit 0") -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return make
