"""Options of ``build`` that are refused before an engine is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from imgbuild.project import Project


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--cache-from", "user/cache"), "--cache-from: 'user/cache' is"),
        (("--cache-to", "type=gha"), "--cache-to: 'type=gha' is"),
        (("--offline", "./nowhere"), "--offline nowhere: no such folder"),
        (("--plan", "--refresh-base"), "--plan cannot be combined"),
        (("--offline", ".", "--refresh-base"), "drop --refresh-base"),
        (("--from", ""), "--from needs --pull"),
        (("--pull", "--from", ""), "--from: '' is not HOST[:PORT]/REPOSITORY"),
    ],
)
def test_one_paragraph_and_exit_code_2(
    project: Project, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    program = "from imgbuild.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", program, "build", "--tf", "2.2", *options],
        cwd=tmp_path,
        env={
            **os.environ,
            "IMGBUILD_PROJECT": str(project.root),
            "DOCKER_HOST": "unix:///no",
            "IMGBUILD_SETTINGS": os.devnull,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
