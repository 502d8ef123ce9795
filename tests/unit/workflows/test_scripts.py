"""Scripts of steps, run with programs that stand for what a machine of GitHub has."""

import os
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from conftest import ROOT

from actions.expression import PURE, Scope
from actions.workflow import Step, read_workflow
from imgbuild.publishing.release import check_release

WORKFLOWS = ROOT / ".github" / "workflows"
IMAGES = read_workflow(WORKFLOWS / "images.yml")
CI = read_workflow(WORKFLOWS / "ci.yml")
SUDO = '#!/bin/sh\necho "$*" >> "$ASKED"\necho "[]"\n'
CHOWN = '#!/bin/sh\n[ "$1" = chown ] && shift && echo "$*" >> "$ASKED"\n'


def _step(job: str, name: str) -> Step:
    jobs = {**IMAGES.jobs, **CI.jobs}
    return next(step for step in jobs[job].steps if step.name == name)


def _run(step: Step, folder: Path, sudo: str = SUDO, **variables: str) -> list[str]:
    """Run a step in a folder, which must succeed; return what `sudo` was asked to run."""
    (folder / "bin").mkdir()
    for name, text in (("sudo", sudo), ("jq", "#!/bin/sh\ncat\n")):
        (folder / "bin" / name).write_text(text, encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)
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
    who = ("-c", "user.name=n", "-c", "user.email=e")
    for words in (("init", "--quiet"), *((*who, "commit", "-qm", "c", "--allow-empty"),) * commits):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    asked = _run(_step("checks", "Which images this change rebuilds, and why"), tmp_path)
    wanted = ".venv/bin/imgbuild matrix --changed-since HEAD~1"
    assert asked == [wanted] * (commits - 1)


def test_a_login_is_the_job_s_own(tmp_path: Path) -> None:
    for number, job in enumerate(("plan", "publish")):
        folder = tmp_path / str(number)
        folder.mkdir()
        step = _step(job, "Log in to the registry")
        (asked,) = _run(step, folder, LOGIN="a", PASSWORD="b", REPOSITORY="x.org/y")
        assert asked == "--preserve-env=DOCKER_CONFIG,LOGIN,PASSWORD .ci/login x.org/y"
        exported = (folder / "GITHUB_ENV").read_text(encoding="utf-8")
        assert exported == f"DOCKER_CONFIG={folder}/temp/docker\n"


@pytest.mark.parametrize("config", ["", "/run/x"])
def test_the_logout_is_of_the_job_s_own_login_alone(tmp_path: Path, config: str) -> None:
    asked = _run(_step("publish", "Log out"), tmp_path, DOCKER_CONFIG=config, REPOSITORY="x.org/y")
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
