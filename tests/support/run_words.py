"""``imgbuild run`` in this process: what it prints, or the paragraph with which it refuses."""

import os
import shlex
from pathlib import Path

from imgbuild.core.errors import ImgbuildError
from support.project_copy import NO_ENGINE, ROOT, invoke

PROGRAM = ("--", "python", "train.py")
#: No settings of this checkout, no engine.
ENVIRONMENT = {"COLUMNS": "200", "IMGBUILD_SETTINGS": os.devnull, **NO_ENGINE}
#: An image that other machines can have.
PUSHED = "registry.example.org/ml/tensorflow:2.2-cpu"
IMAGE = "imgbuild/tensorflow:2.2-cpu"


def ran(folder: Path, *words: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Run the command with the code in `folder`; return its exit code, and what it says."""
    code = () if "--code" in words else ("--code", str(folder))
    given = ("--project", str(ROOT), *code, *words)
    cache = {"XDG_CACHE_HOME": str(folder / ".cache")}
    result = invoke("run", *given, env={**ENVIRONMENT, **cache, **(env or {})})
    if isinstance(result.exception, ImgbuildError):
        return result.exception.exit_code, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def printed(folder: Path, *words: str) -> str:
    """Return what it prints for the image of TensorFlow 2.2 on CPUs."""
    code, text = ran(folder, "--tf", "2.2", "--user", "1000:1000", *words)
    assert code == 0, text
    return text


def docker_lines(text: str) -> list[list[str]]:
    """Return the words of each printed command as a shell reads them."""
    return [shlex.split(line) for line in text.replace("\\\n", " ").splitlines()]
