"""A checkout of another user is used only if it is named."""

import os
import shutil
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from imgbuild.core.project import Project, SettingsOptions, find_project
from support.project_copy import run_main

OTHER = 65534
PARTS = ("", "matrix.yaml", "imgbuild.local.yaml", "images", "tests", "tests/image")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of two users")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a checkout of root's, around an empty folder."""
    root = tmp_path / "checkout"
    for name in ("images", "tests/image", "inner"):
        (root / name).mkdir(parents=True)
    (root / "matrix.yaml").write_text("not: a matrix\n", encoding="utf-8")
    (root / "imgbuild.local.yaml").write_text("engine: {}\n", encoding="utf-8")
    return root


def refused(start: Path) -> str:
    with pytest.raises(InputError) as caught:
        find_project(start)
    return str(caught.value)


@pytest.mark.parametrize("part", PARTS)
def test_project_of_another_user_is_refused(root: Path, part: str) -> None:
    assert find_project(root / "inner").root == root
    os.chown(root / part, OTHER, OTHER)
    for start in (root, root / "inner"):
        message = refused(start)
        assert message.startswith(f"{root / part} belongs to the user ")
        assert f"--project {root}" in message
    assert find_project(root, named=True).root == root


@pytest.mark.parametrize("part", PARTS[1:])
def test_project_link_or_target_of_another_user(root: Path, part: str, tmp_path: Path) -> None:
    """Whoever owns a link chose its target, and whoever owns the target's folder can replace it."""
    aside = tmp_path / "aside"
    aside.mkdir()
    (root / part).rename(aside / "real")
    (root / part).symlink_to(aside / "real")
    assert find_project(root).root == root
    os.chown(root / part, OTHER, OTHER, follow_symlinks=False)
    assert f"{root / part} belongs to" in refused(root)
    os.chown(root / part, 0, 0, follow_symlinks=False)
    for path in (aside / "real", aside):
        os.chown(path, OTHER, OTHER)
        assert f"{path} belongs to" in refused(root)
        os.chown(path, 0, 0)


def test_project_above_the_named_folder_is_checked(root: Path) -> None:
    os.chown(root, OTHER, OTHER)
    with pytest.raises(InputError, match="belongs to"):
        find_project(root / "inner", named=True)


def test_project_of_the_user_of_sudo_is_used(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(root, OTHER, OTHER)
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    assert find_project(root).root == root
    monkeypatch.setenv("SUDO_UID", "١٢")
    refused(root)


def test_project_sudo_uid_counts_for_root_only(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can set the variable for a program of their own."""
    os.chown(root, OTHER, OTHER)
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    monkeypatch.setattr("os.geteuid", lambda: OTHER - 1)
    refused(root)


def test_project_of_root_or_oneself_is_used(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: OTHER)
    assert find_project(root).root == root
    os.chown(root, OTHER, OTHER)
    assert find_project(root).root == root


def test_project_settings_that_are_named_are_used(root: Path) -> None:
    path = root / "imgbuild.local.yaml"
    os.chown(path, OTHER, OTHER)
    assert find_project(root, SettingsOptions(path)).settings_file == path
    variable = {"IMGBUILD_SETTINGS": str(path)}
    for words, env in ((("--settings", str(path)), {}), ((), variable)):
        result = run_main(root, *words, "list", env=env)
        assert (result.returncode, "belongs to" in result.stderr) == (2, False)
    assert f"Images: {root}" in run_main(root, "--version", env=variable).stdout


@pytest.mark.parametrize("command", ["build --dry-run", "doctor", "list", "clean", "lock --check"])
def test_commands_run_no_program_of_another_user(
    project: Project, tmp_path: Path, command: str
) -> None:
    """The settings of a folder above the current one name a program for the builds."""
    ran, home = tmp_path / "ran", tmp_path / "shared" / "home"
    home.mkdir(parents=True)
    program = tmp_path / "shared" / "buildx"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n", encoding="utf-8")
    program.chmod(0o755)
    settings = home.parent / "imgbuild.local.yaml"
    settings.write_text(f"engine: {{buildx: {program}}}\n", encoding="utf-8")
    shutil.copy(project.matrix, home.parent)
    (home.parent / "images").symlink_to(project.root / "images")
    for path in (settings, home.parent / "matrix.yaml", home.parent):
        os.chown(path, OTHER, OTHER)
    result = run_main(home, *command.split())
    assert (result.returncode, result.stdout) == (2, "")
    assert f"{home.parent} belongs to" in result.stderr
    assert not ran.exists()


@pytest.mark.parametrize("variable", ["", "IMGBUILD_PROJECT"])
def test_commands_use_a_named_project(root: Path, variable: str) -> None:
    """The matrix is read, and refused for its content."""
    os.chown(root, OTHER, OTHER)
    words = () if variable else ("--project", str(root))
    result = run_main(root, "list", *words, env={variable: str(root)} if variable else {})
    assert (result.returncode, result.stdout) == (2, "")
    assert "belongs to" not in result.stderr
