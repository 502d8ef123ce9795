"""``as-user``: what it adds to the environment of a command, and the program that it may start."""

import os
import subprocess
from pathlib import Path

import pytest

from imgbuild.core.project import Project

START = "/usr/local/lib/imgbuild/gpu-start"


def _run(script: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", script, *command], env=variables, capture_output=True, text=True, check=False
    )


def _path_with_id(folder: Path, script: str) -> str:
    """Return a PATH that has this script as `id`."""
    path = folder / "id"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"{folder}{os.pathsep}{os.defpath}"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "user4321 user4321"),
        ({"USER": "", "LOGNAME": ""}, "user4321 user4321"),
        ({"USER": "you"}, "you you"),
        ({"LOGNAME": "me"}, "me me"),
        ({"USER": "you", "LOGNAME": "me"}, "you me"),
    ],
)
def test_as_user_names_a_user_without_a_name(
    project: Project, tmp_path: Path, given: dict[str, str], expected: str
) -> None:
    path = _path_with_id(tmp_path, "case $* in *n*) echo 4321; exit 1 ;; esac; echo 4321")
    command = ("sh", "-c", 'echo "$USER $LOGNAME"')
    result = _run(project.files / "start" / "as-user", *command, PATH=path, HOME="/x", **given)
    assert result.stdout.strip() == expected


def test_as_user_leaves_known_users_alone(project: Project, tmp_path: Path) -> None:
    script = project.files / "start" / "as-user"
    path = _path_with_id(tmp_path, "case $* in *n*) echo known ;; *) echo 4321 ;; esac")
    words = _run(script, "env", PATH=path, HOME="/x").stdout.split()
    assert {word.split("=")[0] for word in words} & {"USER", "LOGNAME"} == set()


@pytest.mark.parametrize(
    ("body", "code", "output"),
    [('echo checked; exec "$@"', 7, "checked\nhere 7\n"), ("exit 9", 9, "")],
    ids=["executes the command", "fails"],
)
def test_as_user_executes_the_program_of_gpu_images(
    project: Project, tmp_path: Path, body: str, code: int, output: str
) -> None:
    start, script = tmp_path / "gpu-start", tmp_path / "as-user"
    start.write_text(f"#!/bin/sh\n{body}\n")
    start.chmod(0o755)
    text = (project.files / "start" / "as-user").read_text()
    assert START in text
    script.write_text(text.replace(START, str(start)))
    command = ("sh", "-c", 'echo "here $1"; exit "$1"', "sh", "7")
    result = _run(script, *command, PATH=os.defpath, HOME="/x")
    assert (result.returncode, result.stdout) == (code, output)
