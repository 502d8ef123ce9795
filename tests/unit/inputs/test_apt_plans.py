"""Which stages install packages, read out of the Dockerfiles, and how each is planned."""

import shlex
import subprocess
from pathlib import Path

import pytest

from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.inputs import upstream_files
from imgbuild.inputs.fetched import install_stages, packages
from imgbuild.inputs.upstream_files import add_plans, plan_name
from imgbuild.matrix.images import Image


@pytest.mark.parametrize(
    "name", ["tf-2.2-cpu-debian", "tf-2.2-cpu-ubuntu", "tf-2.12-cpu-debian", "tf-2.2-gpu-ubuntu"]
)
def test_the_stages_of_the_family(images: dict[str, Image], project: Project, name: str) -> None:
    """Every one that calls apt/install, however the templates come to be written."""
    image = images[name]
    rendered = render_dockerfile(image, project.templates)
    stages = install_stages(image, project, Settings())
    # But that of uv, in whose place every build puts something.
    own = rendered.for_architecture("amd64")
    installs = own.text.count("sh /run/apt/install") - 1
    planned = add_plans(rendered, stages, "apt")
    assert planned.count("--plan /out/") == installs
    assert all(f"AS {plan_name(stage)}\n" in planned for stage in stages)
    # A plan runs the whole instruction and installs nothing: what follows may only be planned, too.
    following = [command for stage in stages for command in packages(stage).split(" && ")[1:]]
    assert all(command.startswith("sh /run/apt/install ") for command in following)
    # A local prefix has its own stage in the place of CPython's.
    prefix = {"cpython": {"3.6.15": {"from": "prefix", "path": "/opt/python"}}}
    local = install_stages(image, project, Settings.model_validate(prefix))
    assert "cpython-build" not in [stage.name for stage in local]
    assert len(local) == len(stages)


def test_a_plan_that_drips_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its instruction is run here, with an installer that has no end."""
    monkeypatch.setattr(upstream_files, "PLAN_SECONDS", 1)
    dockerfile = Dockerfile("FROM base AS os\nRUN sh /run/apt/install 'git'\n")
    text = add_plans(dockerfile, [*dockerfile.stages.values()], "apt")
    (line,) = (one for one in text.splitlines() if "--plan" in one)
    (tmp_path / "install").write_text("sleep 60\n", encoding="utf-8")
    script = line.removeprefix("RUN ").replace("/run/apt", shlex.quote(str(tmp_path)))
    assert subprocess.run(["sh", "-c", script], check=False, timeout=20).returncode == 124
