"""Options of ``push`` that are refused before an engine is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from imgbuild.project import Project


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--to", ""), "--to: '' is not HOST[:PORT]/REPOSITORY"),
        (("--release", ""), "--release '' is no release"),
        (("--release", "20261120.0"), "--release '20261120.0' is no release"),
        (("--allow-skipped", "horovod"), "--allow-skipped horovod: this suite cannot"),
    ],
)
def test_one_paragraph_and_exit_code_2(
    project: Project, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    program = "from imgbuild.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", program, "push", "--tf", "2.2", "--stack", "debian", *options],
        cwd=tmp_path,
        env={
            **os.environ,
            "IMGBUILD_PROJECT": str(project.root),
            "DOCKER_HOST": "unix:///no",
            "IMGBUILD_SETTINGS": os.devnull,
            "DOCKER_CONFIG": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
