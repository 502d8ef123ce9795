"""zizmor, GitHub's schema of workflows, and shellcheck over the scripts; each is seen to fail."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from actions.workflow import read_workflow, workflow_of

PROGRAMS = Path(sys.executable).parent
WORKFLOWS = ROOT / ".github" / "workflows"
FILES = sorted(WORKFLOWS.iterdir())
#: What runs with bash and is no Dockerfile: hadolint sees those (test_lint.py).
SCRIPTS = sorted((ROOT / ".ci").iterdir())
BAD = """\
name: bad
on: pull_request_target
jobs:
  one:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@v4
      - run: echo ${{ github.event.pull_request.title }}
"""


def _lint(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROGRAMS / program), *words], capture_output=True, text=True, check=False, timeout=120
    )


def _zizmor(*paths: Path) -> subprocess.CompletedProcess[str]:
    """Look for what is dangerous; without a network, so that it is the same everywhere."""
    options = ("--offline", "--no-config", "--persona=pedantic", "--min-severity=low")
    return _lint("zizmor", *options, "--format=plain", *map(str, paths))


def _schema(*paths: Path) -> subprocess.CompletedProcess[str]:
    """Compare with the schema of GitHub's workflows that check-jsonschema brings."""
    return _lint(
        "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, paths)
    )


def _shellcheck(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROGRAMS / "shellcheck"), "--shell=bash", "--norc", "-"],
        input=script,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_nothing_dangerous() -> None:
    found = _zizmor(*FILES)
    assert found.returncode == 0, found.stdout


def test_the_schema_of_github() -> None:
    found = _schema(*FILES)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_scripts_of_the_steps(path: Path) -> None:
    for job in read_workflow(path).jobs.values():
        for step in job.steps:
            found = _shellcheck(step.run or "true")
            assert found.returncode == 0, f"{job.id}, {step.name}:\n{found.stdout}"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_beside_them(path: Path) -> None:
    found = _shellcheck(path.read_text(encoding="utf-8"))
    assert found.returncode == 0, found.stdout


def test_zizmor_sees_what_is_dangerous(tmp_path: Path) -> None:
    path = tmp_path / "bad.yml"
    path.write_text(BAD, encoding="utf-8")
    found = _zizmor(path)
    assert found.returncode != 0
    for audit in ("template-injection", "unpinned-uses", "dangerous-triggers", "artipacked"):
        assert audit in found.stdout, audit


def test_the_schema_refuses_an_unknown_key(tmp_path: Path) -> None:
    path = tmp_path / "bad.yml"
    path.write_text(BAD.replace("runs-on", "run-on"), encoding="utf-8")
    found = _schema(path)
    assert found.returncode == 1
    assert "'runs-on' is a required property" in found.stdout


def test_shellcheck_sees_words_that_fall_apart() -> None:
    (step,) = (
        workflow_of(BAD.replace("${{ github.event.pull_request.title }}", "$NAMES"), "bad.yml")
        .jobs["one"]
        .steps[1:]
    )
    found = _shellcheck(str(step.run))
    assert found.returncode == 1
    assert "SC2086" in found.stdout
