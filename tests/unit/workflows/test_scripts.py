"""Scripts of steps, run with programs that stand for what a machine of GitHub has."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from conftest import ROOT

from actions.expression import PURE, Scope
from actions.workflow import Step, read_workflow
from imgbuild.ci.formats import github_text, json_text
from imgbuild.ci.listed import Listed, jobs
from imgbuild.matrix.images import Image
from imgbuild.publishing.release import check_release

WORKFLOWS = ROOT / ".github" / "workflows"
IMAGES = read_workflow(WORKFLOWS / "images.yml")
CI = read_workflow(WORKFLOWS / "ci.yml")
NIGHTLY = read_workflow(WORKFLOWS / "nightly.yml")
SUDO = '#!/bin/sh\necho "$*" >> "$ASKED"\necho "[]"\n'
CHOWN = '#!/bin/sh\n[ "$1" = chown ] && shift && echo "$*" >> "$ASKED"\n'


def _step(job: str, name: str) -> Step:
    jobs = {**IMAGES.jobs, **CI.jobs, **NIGHTLY.jobs}
    return next(step for step in jobs[job].steps if step.name == name)


def _run(step: Step, folder: Path, sudo: str = SUDO, **variables: str) -> list[str]:
    """Run a step in a folder, which must succeed; return what `sudo` was asked to run."""
    (folder / "bin").mkdir()
    (folder / "bin" / "sudo").write_text(sudo, encoding="utf-8")
    (folder / "bin" / "sudo").chmod(0o755)
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    files = ("ASKED", "GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")
    for name in files:
        (folder / name).touch()
    told = {name: str(folder / name) for name in files} | {"RUNNER_TEMP": str(folder / "temp")}
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", str(step.run)],
        cwd=folder,
        env={"PATH": path, **told, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return (folder / "ASKED").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("run", "number"), [("1", "1"), ("9999", "9999"), ("10000", "1"), ("20001", "3")]
)
def test_the_release_of_every_run_is_one(tmp_path: Path, run: str, number: str) -> None:
    step = _step("plan", "Decide the release, and what is in it")
    given = {"GITHUB_RUN_NUMBER": run, "SELECTION": "--all", "REPOSITORY": "x.org/y"}
    _run(step, tmp_path, **given)
    outputs = (tmp_path / "GITHUB_OUTPUT").read_text(encoding="utf-8").splitlines()
    assert outputs[1] == "shards=[]"
    release = outputs[0].removeprefix("release=")
    day, _, found = check_release(release).partition(".")
    assert found == number
    assert abs(datetime.now(UTC) - datetime.strptime(f"{day}Z", "%Y%m%d%z")).days <= 1


@pytest.mark.parametrize("commits", [1, 2])
def test_the_first_commit_changes_no_image(tmp_path: Path, commits: int) -> None:
    _commits(tmp_path, commits)
    asked = _run(_step("checks", "Which images this change rebuilds, and why"), tmp_path)
    wanted = ".venv/bin/imgbuild matrix --changed-since HEAD~1"
    assert asked == [wanted] * (commits - 1)


def _commits(folder: Path, count: int) -> None:
    """Make a repository with so many commits."""
    who = ("-c", "user.name=n", "-c", "user.email=e")
    for words in (("init", "--quiet"), *((*who, "commit", "-qm", "c", "--allow-empty"),) * count):
        subprocess.run(["git", *words], cwd=folder, check=True)


@pytest.mark.parametrize("count", [0, 2])
def test_the_summary_says_which_images_and_why(
    tmp_path: Path, images: dict[str, Image], count: int
) -> None:
    _commits(tmp_path, 2)
    reason = 'changed: pin horovod 0.16.1 → 0.16.4; `it\'s` "quoted" {name}'
    listed = [Listed(image, None, reason) for image in [*images.values()][:count]]
    step = _step("checks", "Which images this change rebuilds, and why")
    _run(step, tmp_path, sudo=_saying(tmp_path, json_text(listed)))
    said = (tmp_path / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8").splitlines()
    assert said == [f"- `{one.image.name}`: {reason}" for one in listed]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_night_s_part_is_what_imgbuild_build_takes(
    tmp_path: Path, images: dict[str, Image], count: int
) -> None:
    listed = [Listed(image, None, "selected") for image in [*images.values()][:count]]
    step = _step("rebuild", "Tonight's part of the family")
    sudo = _saying(tmp_path, github_text(jobs(listed, None)))
    _run(step, tmp_path, sudo=sudo, SELECTION="--all", PARTS="14")
    said = (tmp_path / "GITHUB_ENV").read_text(encoding="utf-8")
    assert said == "NAMES=" + " ".join(f"--name {one.image.name}" for one in listed) + "\n"


def _saying(folder: Path, text: str) -> str:
    """Return a `sudo` whose command prints a text."""
    (folder / "answer").write_text(f"{text}\n", encoding="utf-8")
    return f"#!/bin/sh\ncat '{folder}/answer'\n"


def test_a_login_is_the_job_s_own(tmp_path: Path) -> None:
    for number, job in enumerate(("plan", "publish")):
        folder = tmp_path / str(number)
        folder.mkdir()
        step = _step(job, "Log in to the registry")
        (asked,) = _run(step, folder, LOGIN="a", PASSWORD="b", REPOSITORY="x.org/y")
        assert asked == "--preserve-env=DOCKER_CONFIG,LOGIN,PASSWORD .ci/login x.org/y"
        exported = (folder / "GITHUB_ENV").read_text(encoding="utf-8")
        assert exported == f"DOCKER_CONFIG={folder}/temp/docker\n"


@pytest.mark.parametrize("job", ["plan", "publish"])
def test_who_logs_in_logs_out_whatever_happened(job: str) -> None:
    names = [step.name for step in IMAGES.jobs[job].steps]
    assert names.index("Log in to the registry") < names.index("Log out")
    assert _step(job, "Log out").condition == "always()"
    scripts = [str(step.run) for step in IMAGES.jobs[job].steps[names.index("Log out") + 1 :]]
    assert not any("imgbuild" in script or "docker" in script for script in scripts)


@pytest.mark.parametrize("job", ["plan", "publish"])
@pytest.mark.parametrize("config", ["", "/run/x"])
def test_the_logout_is_of_the_job_s_own_login_alone(tmp_path: Path, job: str, config: str) -> None:
    asked = _run(_step(job, "Log out"), tmp_path, DOCKER_CONFIG=config, REPOSITORY="x.org/y")
    assert asked == ["--preserve-env=DOCKER_CONFIG docker logout x.org"] * bool(config)


@pytest.mark.parametrize("job", ["plan", "publish"])
def test_every_step_that_needs_the_login_gets_it(job: str) -> None:
    scripts = "\n".join(str(step.run) for step in IMAGES.jobs[job].steps)
    asked = re.findall(r"sudo (.*?)(?:\.venv/bin/imgbuild|docker) ", scripts)
    assert len(asked) >= 2
    assert {*asked} == {"--preserve-env=DOCKER_CONFIG "}


def test_the_workspace_is_given_back_at_last_whatever_happened(tmp_path: Path) -> None:
    *_, step = IMAGES.jobs["publish"].steps
    functions = {**PURE, "always": lambda: True}
    for environment, given_back in (("self-hosted", True), ("github-hosted", False)):
        scope = Scope({"runner": {"environment": environment}}, functions)
        assert scope.condition(step.condition) == given_back
    assert "always()" in str(step.condition)
    asked = _run(step, tmp_path, sudo=CHOWN)
    assert asked == [f"-R {os.getuid()}:{os.getgid()} . {tmp_path}/temp"]
