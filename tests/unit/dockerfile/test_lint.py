"""hadolint, with shellcheck inside, over every committed Dockerfile."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from imgbuild.dockerfile.render import dockerfile_path
from imgbuild.matrix.images import Image
from imgbuild.project import Project

#: What the project does otherwise, and why.
ACCEPTED = {
    "DL3006",  # "tag the base": it is a named build context, pinned by its digest
    "DL3008",  # "pin apt packages": those that are pins are; the others get security updates
    "DL3003",  # "use WORKDIR": inside a stage of which only one folder is copied
    "DL4006",  # "set pipefail": the checks that end in a pipe are `echo SUM | sha256sum --check`
    "SC2016",  # "$ORIGIN does not expand": it must not, the loader reads it
}


#: A command, up to the next instruction.
_RUN = re.compile(r"^RUN .*?(?=^[A-Z]+ |\Z)", re.MULTILINE | re.DOTALL)


def _findings(paths: list[Path]) -> list[str]:
    options = [f"--ignore={code}" for code in sorted(ACCEPTED)]
    hadolint = str(Path(sys.executable).with_name("hadolint"))
    command = [hadolint, "--no-fail", "--format=json", *options, *map(str, paths)]
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
    for image in images:
        text = dockerfile_path(image, project.dockerfiles).read_text(encoding="utf-8")
        stages = re.split(r"(?m)^(?=FROM )", text)
        paths.append(folder / image.name)
        paths[-1].write_text("".join(_RUN.sub(_empty, s) if s in seen else s for s in stages))
        seen.update(stages)
    return paths


def _empty(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def test_no_dockerfile_has_a_finding(
    images: dict[str, Image], project: Project, tmp_path: Path
) -> None:
    assert _findings(_once(images.values(), project, tmp_path)) == []


def test_no_pipe_hides_the_failure_of_its_first_half(
    images: dict[str, Image], project: Project
) -> None:
    paths = [dockerfile_path(image, project.dockerfiles) for image in images.values()]
    lines = {line for path in paths for line in path.read_text(encoding="utf-8").splitlines()}
    assert {line for line in lines if " | " in line and not line.startswith("echo ")} == set()


@pytest.mark.parametrize(
    ("line", "code"),
    [("RUN cd /x", "DL3003"), ("RUN apt-get install x", "DL3015"), ("RUN [ $x = 1 ]", "SC2086")],
)
def test_the_linter_finds_faults(tmp_path: Path, line: str, code: str) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(f"FROM base\n{line}\n")
    found = _findings([path])
    assert any(f" {code} " in finding for finding in found) is (code not in ACCEPTED)
