"""An archive that does not answer has an end: for base images, and for plans of packages."""

import shlex
import subprocess
from pathlib import Path

import pytest
from test_base import Machine, machine

from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.errors import MachineError
from imgbuild.inputs import upstream_files
from imgbuild.inputs.base import IDLE_HOOKS
from imgbuild.inputs.upstream_files import with_plans

__all__ = ["machine"]


def test_apt_waits_a_minute_for_a_base_and_the_image_knows_nothing_of_it(tmp_path: Path) -> None:
    parts = tmp_path / "etc/apt/apt.conf.d"
    parts.mkdir(parents=True)
    before, after = (hook.partition("=")[2] for hook in IDLE_HOOKS)
    assert [hook.partition("=")[0] for hook in IDLE_HOOKS] == ["--setup-hook", "--customize-hook"]
    subprocess.run(["sh", "-c", before, "sh", tmp_path], check=True)
    (file,) = parts.iterdir()
    assert file.read_text(encoding="utf-8").splitlines() == [
        "Acquire::http::Timeout 60;",
        "Acquire::https::Timeout 60;",
    ]
    subprocess.run(["sh", "-c", after, "sh", tmp_path], check=True)
    assert [*parts.iterdir()] == []


def test_a_run_that_ends_well_and_wrote_nothing_makes_no_base(machine: Machine) -> None:
    machine.behave("nothing")
    with pytest.raises(MachineError, match="could not be made"):
        machine.bootstrap()
    assert machine.rests() == []


def test_a_plan_that_drips_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its instruction is run here, with an installer that has no end."""
    monkeypatch.setattr(upstream_files, "PLAN_SECONDS", 1)
    dockerfile = Dockerfile("FROM base AS os\nRUN sh /run/apt/install 'git'\n")
    text = with_plans(dockerfile, [*dockerfile.stages.values()], "apt")
    (line,) = (one for one in text.splitlines() if "--plan" in one)
    (tmp_path / "install").write_text("sleep 60\n", encoding="utf-8")
    script = line.removeprefix("RUN ").replace("/run/apt", shlex.quote(str(tmp_path)))
    assert subprocess.run(["sh", "-c", script], check=False, timeout=20).returncode == 124
