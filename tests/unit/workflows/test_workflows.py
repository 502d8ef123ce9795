"""The workflows and scripts of CI pass their linters and keep a few rules that no linter knows."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from check_jsonschema import main as check_jsonschema  # type: ignore[import-untyped]
from click.testing import CliRunner

from support.project_copy import ROOT
from support.workflow_files import read_workflow

PROGRAMS = Path(sys.executable).parent
FILES = sorted((ROOT / ".github" / "workflows").iterdir())
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))
SCRIPTS = sorted((ROOT / ".ci").iterdir())
ONLY_MAIN = "github.ref == 'refs/heads/main'"
#: Without a network, so that it is the same everywhere.
ZIZMOR = ("zizmor", "--offline", "--no-config", "--persona=auditor", "--format=plain")
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


def _workflow(name: str) -> dict[str, Any]:
    return read_workflow(ROOT / ".github" / "workflows" / name)


JOBS = [
    pytest.param(job, _workflow(file.name), id=f"{file.stem}-{name}")
    for file in FILES
    for name, job in _workflow(file.name)["jobs"].items()
]


def _lint(program: str, *words: str | Path, stdin: str = "") -> tuple[int, str]:
    command = [str(PROGRAMS / program), *map(str, words)]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout


def _check_schema(name: str, *paths: Path) -> tuple[int, str]:
    """Run check-jsonschema in this process, which has imported jsonschema already."""
    done = CliRunner().invoke(check_jsonschema, ["--builtin-schema", name, *map(str, paths)])
    return done.exit_code, done.output


def _shellcheck(script: str) -> tuple[int, str]:
    return _lint("shellcheck", "--shell=bash", "--norc", "-", stdin=script)


def _step(script: str, **env: str) -> tuple[int, str]:
    """Run a step as GitHub does, with these variables alone."""
    command = ["/bin/bash", "-eo", "pipefail", "-c", script]
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_zizmor_finds_nothing_dangerous(tmp_path: Path) -> None:
    code, output = _lint(*ZIZMOR, *FILES, *ACTIONS)
    assert code == 0, output
    bad = tmp_path / "bad.yml"
    step = "      - env: {X: '${{ secrets.X }}'}\n        run: ./x\n"
    bad.write_text(BAD + step, encoding="utf-8")
    code, output = _lint(*ZIZMOR, bad)
    assert code != 0
    audits = "template-injection unpinned-uses dangerous-triggers secrets-outside-env"
    assert [audit for audit in audits.split() if audit not in output] == []


@pytest.mark.parametrize(("kind", "paths"), [("workflows", FILES), ("actions", ACTIONS)])
def test_the_schema_of_github_allows_them(kind: str, paths: list[Path]) -> None:
    assert _check_schema(f"vendor.github-{kind}", *paths) == (0, "ok -- validation done\n")


def test_the_schema_of_github_refuses_a_bad_workflow(tmp_path: Path) -> None:
    (tmp_path / "bad.yml").write_text(BAD.replace("runs-on", "run-on"), encoding="utf-8")
    code, output = _check_schema("vendor.github-workflows", tmp_path / "bad.yml")
    assert (code, "'runs-on' is a required property" in output) == (1, True)


@pytest.mark.parametrize("script", [path.read_text("utf-8") for path in SCRIPTS])
def test_shellcheck_passes_the_scripts(script: str) -> None:
    assert _shellcheck(script) == (0, "")


@pytest.mark.parametrize(("job", "workflow"), JOBS)
def test_shellcheck_passes_the_steps(job: dict[str, Any], workflow: dict[str, Any]) -> None:
    assert workflow["defaults"] == {"run": {"shell": "bash"}}  # with pipefail
    for step in job["steps"]:
        if "run" in step:
            assert _shellcheck(step["run"]) == (0, ""), step["name"]


def test_shellcheck_finds_a_fault() -> None:
    assert _shellcheck("imgbuild build $NAMES")[0] == 1


@pytest.mark.parametrize(("job", "workflow"), JOBS)
def test_expressions_name_jobs_steps_and_outputs_that_exist(
    job: dict[str, Any], workflow: dict[str, Any]
) -> None:
    text = json.dumps(job)
    needs = job.get("needs", [])
    needs = [needs] if isinstance(needs, str) else needs
    for name, output in re.findall(r"needs\.(\w+)\.outputs\.(\w+)", text):
        assert name in needs
        assert output in workflow["jobs"][name]["outputs"]
    for name, output in re.findall(r"steps\.(\w+)\.outputs\.(\w+)", text):
        (step,) = (step for step in job["steps"] if step.get("id") == name)
        assert "uses" in step or f"{output}=" in step["run"]


@pytest.mark.parametrize(("job", "workflow"), JOBS)
def test_jobs_are_limited(job: dict[str, Any], workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {}
    assert "group" in workflow["concurrency"]
    assert int(job["timeout-minutes"]) <= 360
    read = {("contents", "read"), ("packages", "read")}
    written = {*job["permissions"].items()} - read
    if job.get("environment") == "index":  # what proves to the index who uploads
        assert written == {("id-token", "write"), ("attestations", "write")}
        assert workflow["on"] == {"push": {"tags": ["v*"]}}
        assert not any("hatchling" in step.get("run", "") for step in job["steps"])
    elif "pages" in job["permissions"]:  # only what writes to Pages, and nothing of the checkout
        assert written == {("pages", "write"), ("id-token", "write")}
        assert job["environment"]["name"] == "github-pages"
        assert re.match(rf"{re.escape(ONLY_MAIN)} && ", job["if"])
        assert [step["uses"].partition("@")[0] for step in job["steps"]] == ["actions/deploy-pages"]
    elif "issues" in job["permissions"]:  # only what reports, without a checkout
        assert written == {("issues", "write")}
        assert not [step for step in job["steps"] if "uses" in step]
    else:
        # Who publishes also signs as the workflow: no other job can do either.
        signs = {("id-token", "write")} if ("packages", "write") in written else set()
        assert written <= {("packages", "write"), *signs}
    if "packages" in job["permissions"]:  # only main publishes, whatever started the run
        assert "pull_request" not in workflow["on"]
        assert re.match(rf"{re.escape(ONLY_MAIN)}( && |$)", job["if"])
        assert "||" not in job["if"]
    for step in job["steps"]:
        assert "${{" not in step.get("run", "")
    if "pull_request" in workflow["on"]:
        assert "secrets." not in json.dumps(job)


@pytest.mark.parametrize(("job", "workflow"), JOBS)
def test_what_is_published_is_made_in_the_run_by_jobs_that_cannot_publish(
    job: dict[str, Any], workflow: dict[str, Any]
) -> None:
    """What builds is root: it could read a token of its job out of the runner's memory."""
    scripts = "".join(step.get("run", "") for step in job["steps"])
    if "imgbuild push" in scripts:
        assert not re.search(r"--pull|--buildkit-cache", json.dumps(workflow))
        built, taken = (
            [step["with"]["name"] for step in one["steps"] if f"/{way}-artifact" in str(step)]
            for one, way in ((workflow["jobs"]["build"], "upload"), (job, "download"))
        )
        assert taken == ["shard-${{ strategy.job-index }}"]
        assert {*taken} <= {*built}
        assert job["strategy"] == workflow["jobs"]["build"]["strategy"]
        assert job["runs-on"] == workflow["jobs"]["build"]["runs-on"]
    if re.search(r"imgbuild (build|test|verify|extend)|make (test|nightly)|\.ci/run", scripts):
        assert {*job["permissions"].items()} <= {("contents", "read")}
        assert "environment" not in job
        assert "secrets." not in json.dumps(job)


@pytest.mark.parametrize(("job", "_"), JOBS)
def test_a_login_lasts_for_one_command(job: dict[str, Any], _: object) -> None:
    steps = [step.get("run", "") for step in job["steps"]]
    logins = [number for number, run in enumerate(steps) if ".ci/login" in run]
    assert bool(logins) is ("secrets." in json.dumps(job))
    for number in logins:
        assert job["environment"] == "registry"
        (command,) = re.findall(
            r'imgbuild ((?:push|matrix|catalog).*?) (?:"\$WHICH"|--to|--published) ',
            steps[number + 1],
        )
        # Bases are made by programs of their archives: they are there before, for all images.
        bases = f"imgbuild {command} --make-bases"
        assert command in {"push $NAMES", "catalog"} or bases in steps[number - 1]
        assert "docker logout" in steps[number + 2]
        assert job["steps"][number + 2]["if"] == "always()"
        assert not re.search(r"imgbuild (build|test) ", "".join(steps[number:]))


def test_the_catalogue_is_the_first_page_of_the_documentation() -> None:
    """Both are written into the folder that Pages gets, the catalogue last."""
    *steps, upload = _workflow("images.yml")["jobs"]["catalog"]["steps"]
    runs = "\n".join(step.get("run", "") for step in steps)
    assert re.search(r"make site SITE=public\b.*\.ci/login.*--output public\n", runs, re.DOTALL)
    assert upload["with"] == {"path": "public"}


@pytest.mark.parametrize(("switch", "code"), [("yes", 0), ("no", 1)])
def test_nothing_is_released_before_the_readme_says_how_to_get_it(switch: str, code: int) -> None:
    """The switch is read by the tests of the README, too."""
    step = _workflow("release.yml")["jobs"]["build"]["steps"][1]
    assert _step(step["run"], ON_INDEX=switch)[0] == code


@pytest.mark.parametrize(
    ("free", "runner", "freed"),
    [("true", "github-hosted", True), ("false", "github-hosted", False), ("true", "own", False)],
)
def test_only_githubs_own_runners_lose_their_tools(
    tmp_path: Path, free: str, runner: str, *, freed: bool
) -> None:
    steps = _workflow("images.yml")["jobs"]["build"]["steps"]
    (step,) = (step for step in steps if step.get("name") == "Free the disk")
    assert step["env"] == {"FREE": "true", "RUNNER": "${{ runner.environment }}"}
    (tmp_path / "sudo").write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    (tmp_path / "sudo").chmod(0o755)
    code, said = _step(step["run"], PATH=str(tmp_path), FREE=free, RUNNER=runner)
    assert (code, said.startswith("rm -rf /opt")) == (0, freed)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_variable_and_secret_is_documented(path: Path) -> None:
    page = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "docs").glob("*.md"))
    named = re.findall(r"(?:vars|secrets)\.(\w+)", path.read_text(encoding="utf-8"))
    assert [name for name in named if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("results", ["success success success", "success failure success"])
def test_the_gate_passes_only_if_every_other_job_succeeded(results: str) -> None:
    jobs = _workflow("ci.yml")["jobs"]
    gate = jobs["gate"]
    assert {*gate["needs"]} == {*jobs} - {"gate"}
    assert gate["if"] == "always()"
    assert gate["env"]["RESULTS"] == "${{ join(needs.*.result, ' ') }}"
    code, _ = _step(gate["steps"][0]["run"], RESULTS=results)
    assert (code == 0) is ("failure" not in results)


def test_only_a_person_lets_images_be_published_without_their_gpu_suite() -> None:
    """Where nobody does, images for GPUs are left out: one would hold up its whole shard."""
    workflow = _workflow("images.yml")
    asked = workflow["on"]["workflow_dispatch"]["inputs"]["allow-skipped-gpu"]
    assert (asked["type"], asked["default"]) == ("boolean", "false")
    allowing = re.findall(r"\$\{\{[^}]*--allow-skipped[^}]*\}\}", json.dumps(workflow))
    assert allowing == ["${{ inputs.allow-skipped-gpu && '--allow-skipped gpu_runs' || '' }}"]
    assert json.dumps(workflow).count("--allow-skipped") == 1
    assert workflow["env"]["GPUS"] == (
        "${{ !(vars.GPU_RUNNER || inputs.allow-skipped-gpu) && '--without-gpu' || '' }}"
    )
    selected = re.findall(r"imgbuild matrix (\S+ \S+)", json.dumps(workflow))
    assert {*selected} == {"$SELECTION $GPUS"}
