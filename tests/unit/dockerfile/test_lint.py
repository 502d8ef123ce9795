"""hadolint, with shellcheck inside, over every committed Dockerfile."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from imgbuild.core.project import Project
from imgbuild.dockerfile.render import dockerfile_path
from imgbuild.matrix.images import Image

#: A command, up to the next comment or instruction.
_RUN = re.compile(r"^RUN .*?(?=^[A-Z#]|\Z)", re.MULTILINE | re.DOTALL)


def _findings(paths: list[Path]) -> list[str]:
    hadolint = str(Path(sys.executable).with_name("hadolint"))
    command = [hadolint, "--no-fail", "--format=json", *map(str, paths)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return [
        f"{f['file']}:{f['line']} {f['code']} {f['message']}" for f in json.loads(result.stdout)
    ]


def _once(images: Iterable[Image], project: Project, folder: Path) -> list[Path]:
    """Return the Dockerfiles with empty lines for the commands of stages that an earlier one has.

    Two of three stages stand in another image's Dockerfile, too, and linting them takes long.
    """
    seen: set[str] = set()
    paths = []

    def emptied(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    for image in images:
        text = dockerfile_path(image, project.dockerfiles).read_text(encoding="utf-8")
        stages = re.split(r"(?m)^(?=FROM )", text)
        paths.append(folder / image.name)
        paths[-1].write_text("".join(_RUN.sub(emptied, s) if s in seen else s for s in stages))
        seen.update(stages)
    return paths


def test_no_dockerfile_has_a_finding(
    images: dict[str, Image], project: Project, tmp_path: Path
) -> None:
    assert _findings(_once(images.values(), project, tmp_path)) == []


def _scripts(project: Project) -> list[Path]:
    files = [path for path in project.files.rglob("*") if path.is_file()]
    files += (project.root / "build" / "imgbuild").rglob("*.sh")
    return [path for path in files if path.suffix in {"", ".sh"} and "_config" not in path.name]


def test_no_script_has_a_finding(project: Project) -> None:
    scripts = _scripts(project)
    shellcheck = str(Path(sys.executable).with_name("shellcheck"))
    # What a script reads is known in the image alone, and what is read has no first line.
    command = [shellcheck, "--norc", "--exclude=SC1091,SC2148", "--format=gcc", *map(str, scripts)]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert [line for line in found.splitlines() if " note: " not in line] == []


def test_no_pipe_hides_the_failure_of_its_first_half(
    images: dict[str, Image], project: Project
) -> None:
    paths = [dockerfile_path(image, project.dockerfiles) for image in images.values()]
    paths += [path for path in _scripts(project) if path.name != "install"]
    lines = {line for path in paths for line in path.read_text(encoding="utf-8").splitlines()}
    piped = {line.strip() for line in lines if " | " in line}
    assert {line for line in piped if not line.startswith(("echo ", "case ", "#"))} == set()


@pytest.mark.parametrize(
    ("line", "code"),
    [("RUN cd /x", "DL3003"), ("RUN apt-get install x", "DL3015"), ("RUN [ $x = 1 ]", "SC2086")],
)
def test_the_linter_finds_faults(tmp_path: Path, line: str, code: str) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(f"FROM base\n{line}\n")
    found = _findings([path])
    assert any(f" {code} " in finding for finding in found)
