"""The workflows' own steps, executed: a pin is changed, and exactly what uses it is published.

What is built has another name on the engine, so that nothing of a user's is touched.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from imgbuild.engine.client import Engine
from support.checkout import ROOT, Checkout
from support.copied_checkout import remove_images
from support.own_registry import OwnRegistry, own_registry
from support.publishing_project import publishing_project
from support.releases import release_of
from support.workflow_steps import INDEX, JobRun, WorkflowMachine

LOCAL = "imgbuild-workflow/tensorflow"
PUBLISHED = "ml/tensorflow"
USER, PASSWORD = "ci", "s3cret-of-the-ci"
_OWN = re.compile(
    r"GITHUB_|ACTIONS_|RUNNER_|XDG_STATE_HOME|DOCKER_CONFIG|PYTHON|VIRTUAL_ENV|IMGBUILD"
)
#: The row whose Horovod is changed, and what its image is called before the release.
RELEASE = release_of("1.13")
ROW = f"  - {{tensorflow: {RELEASE}, stack: debian, variants: [cpu], horovod: 0.16.1"
CHANGED, TAG = "tf-1.13-cpu-debian", f"{RELEASE}-cpu-py36-debian12-openmpi4.1.4"
OTHER_TAG = f"{release_of('1.12')}-cpu-py36-debian12-openmpi4.1.4"


class Publication(NamedTuple):
    """A run of images.yml: the release, the images of the plan, and its shards."""

    release: str
    planned: list[str]
    shards: list[JobRun]


@dataclass
class CiProject:
    """A repository, whose workflows run below ``folder``."""

    checkout: Checkout
    folder: Path
    registry: OwnRegistry
    selection: str
    runs: int = 0

    def commit(self, message: str) -> None:
        who = ("-c", "user.name=imgbuild", "-c", "user.email=imgbuild@example.org")
        for words in (("add", "--all"), ("commit", "--quiet", "--message", message)):
            subprocess.run(["git", *who, *words], cwd=self.checkout.root, check=True)

    def run(self, workflow: str, job: str, **values: str) -> JobRun:
        """Run a job for the last commit; ``values`` name expressions, ``_`` for a dot."""
        (self.folder / "docker").mkdir(parents=True, exist_ok=True)
        machine = WorkflowMachine(self.checkout.root, self.folder, self._environment())
        known = {**self._values(), **{name.replace("_", "."): v for name, v in values.items()}}
        return machine.run(workflow, job, known, {"GITHUB_RUN_NUMBER": str(self.runs)})

    def publish(self) -> Publication:
        """Run images.yml: the plan, then the two jobs of each shard."""
        self.runs += 1
        plan = self.run("images.yml", "plan")
        assert plan.succeeded, str(plan.printed)
        release = plan.outputs["release"]
        entries = json.loads(plan.outputs["shards"])["include"]
        shards = [self._shard(n, one["names"], release) for n, one in enumerate(entries)]
        if shards:
            assert self.run("images.yml", "wheels").succeeded
        planned = sorted(name for entry in entries for name in entry["images"].split())
        return Publication(release, planned, shards)

    def _shard(self, number: int, names: str, release: str) -> JobRun:
        """Return both jobs of a shard as one."""
        values = {"matrix_names": names, INDEX: str(number)}
        built = self.run("images.yml", "build", **values)
        pushed = self.run("images.yml", "publish", **values, needs_plan_outputs_release=release)
        return JobRun(
            built.succeeded and pushed.succeeded,
            {**pushed.results, **built.results},
            {**pushed.printed, **built.printed},
            pushed.outputs,
            built.summary + pushed.summary,
        )

    def tags(self) -> dict[str, str]:
        """Return the digest of each tag that is published, as the registry keeps it."""
        kept = self.registry.storage / "docker/registry/v2/repositories" / PUBLISHED
        links = kept.glob("_manifests/tags/*/current/link")
        return {path.parts[-3]: path.read_text(encoding="ascii") for path in links}

    def _values(self) -> dict[str, str]:
        """Return the value of each expression of the workflows, by its text."""
        return {
            "vars.REPOSITORY || format('ghcr.io/{0}/tensorflow', github.repository)": (
                f"{self.registry.host}/{PUBLISHED}"
            ),
            "vars.SELECTION || '--all'": self.selection,
            "!(vars.GPU_RUNNER || inputs.allow-skipped-gpu) && '--without-gpu' || ''": (
                "--without-gpu"
            ),
            "github.event_name == 'schedule' && '--outdated' || '--missing'": "--missing",
            "vars.REGISTRY_USER || github.actor": USER,
            "secrets.REGISTRY_PASSWORD || github.token": PASSWORD,
            "inputs.refresh && '--refresh' || ''": "",
            # The CPython of the machine that tests may be one that was there.
            "vars.PLATFORM && format('--platform {0}', vars.PLATFORM) || ''": "",
            "env.PLATFORM != '' && env.SIGN == '--sign-keyless'": "false",
            "vars.PUSH_OPTIONS": "--allow-substituted",
            "vars.SIGN == 'no' && ' ' || '--sign-keyless'": " ",
            "inputs.allow-skipped-gpu && '--allow-skipped gpu_runs' || ''": (
                "--allow-skipped gpu_runs"
            ),
            "runner.environment": "self-hosted",
            "always() && runner.environment == 'self-hosted'": "true",
            "env.NAMES != ''": "true",
        }

    def _environment(self) -> dict[str, str]:
        """Return the machine's own environment, without what a test or a CI around it has set."""
        kept = {name: value for name, value in os.environ.items() if not _OWN.match(name)}
        host = {"DOCKER_HOST": self.checkout.host} if self.checkout.host else {}
        return {**kept, **host, "DOCKER_CONFIG": str(self.folder / "docker")}


def ci_project(folder: Path, host: str | None, registry: OwnRegistry, selection: str) -> CiProject:
    """Return a repository of what is committed here, with the changes of the work tree."""
    checkout = Checkout(folder / "repository", folder / "state", host)
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.split("\0"):
        if (ROOT / name).is_file():
            (checkout.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, checkout.root / name)
    subprocess.run(["git", "init", "--quiet"], cwd=checkout.root, check=True)
    return CiProject(checkout, folder / "ci", registry, selection)


@pytest.fixture
def project(
    request: pytest.FixtureRequest, tmp_path: Path, host: str | None, engine: Engine
) -> Iterator[CiProject]:
    """Give a repository of images: ``tiny``, ``real`` ones, or the user's ``own``, which stay."""
    login = ("ci", PASSWORD)
    with own_registry(tmp_path / "registry", login=login) as registry:
        made = ci_project(tmp_path, host, registry, "--tf 1.12 --tf 1.13 --stack debian")
        if request.param == "tiny":
            _make_tiny(made, tmp_path)
        if request.param != "own":
            name = ("repository: imgbuild/tensorflow", f"repository: {LOCAL}")
            made.checkout.edit("matrix.yaml", *name)
        made.commit("first")
        yield made
        remove_images(engine, LOCAL)


def _make_tiny(project: CiProject, folder: Path) -> None:
    """Give the repository templates and suites of images that are built in a second."""
    tiny = publishing_project(folder / "tiny", project.checkout.host, local=LOCAL)
    for part in ("images/templates", "tests/image"):
        shutil.rmtree(project.checkout.root / part)
        shutil.copytree(tiny.root / part, project.checkout.root / part)


def _succeeded(publication: Publication) -> None:
    for shard in publication.shards:
        assert shard.succeeded, str(shard.printed)
        assert PASSWORD not in str(shard.printed)


def _images(tags: dict[str, str]) -> set[str]:
    """Return the tags of images, without records, input digests and kept artifacts."""
    other = re.compile(r"\.record$|^(input|push|verdicts|wheel|sha256)-|^index$")
    return {tag for tag in tags if not other.search(tag)}


@pytest.mark.parametrize(
    "project", ["tiny", pytest.param("real", marks=pytest.mark.nightly)], indirect=True
)
def test_a_changed_pin_is_all_that_is_published(project: CiProject) -> None:
    first = project.publish()
    _succeeded(first)
    assert first.planned == ["tf-1.12-cpu-debian", CHANGED]
    before = project.tags()
    assert sum(f"-{first.release}" in tag for tag in _images(before)) == 2

    project.checkout.edit("matrix.yaml", ROW, ROW.replace("0.16.1", "0.16.4"))
    project.commit("Horovod 0.16.4")

    second = project.publish()
    _succeeded(second)
    assert second.planned == [CHANGED]
    after = project.tags()
    immutable = f"{TAG}-{second.release}"
    assert _images(after) - _images(before) == {immutable}
    moved = {tag for tag in _images(before) if before[tag] != after[tag]}
    assert moved == {f"{RELEASE}-cpu", "1.13-cpu"}
    assert {after[tag] for tag in moved} == {after[immutable]}

    third = project.publish()
    assert (third.planned, third.shards) == ([], [])
    assert project.tags() == after


@pytest.mark.nightly
@pytest.mark.parametrize("project", ["tiny"], indirect=True)
def test_a_shard_that_fails_publishes_nothing_and_the_next_run_publishes_it(
    project: CiProject, engine: Engine
) -> None:
    suite, good = "tests/image/test_bytes.py", 'strip() == "60000"'
    project.checkout.edit(suite, good, f'{good} and "0.16.1" not in host.check_output("python")')
    project.commit("a suite that TensorFlow 1.13 fails")
    first = project.publish()
    assert sorted(shard.succeeded for shard in first.shards) == [False, True]
    (failed,) = (shard for shard in first.shards if not shard.succeeded)
    results = [failed.results[n] for n in ("Build and test", "Push what passed", "Log out")]
    assert results == ["failure", "skipped", "success"]
    assert "### Failures" in failed.summary
    released = [tag for tag in _images(project.tags()) if f"-{first.release}" in tag]
    assert released == [f"{OTHER_TAG}-{first.release}"]

    project.checkout.edit(suite, ' and "0.16.1" not in host.check_output("python")', "")
    project.commit("a better suite")
    remove_images(engine, LOCAL)  # each job has a machine of its own
    second = project.publish()
    _succeeded(second)
    assert second.planned == [CHANGED]
    assert f"{TAG}-{second.release}" in project.tags()


@pytest.mark.nightly
@pytest.mark.parametrize("project", ["tiny"], indirect=True)
def test_a_night_rebuilds_its_part_and_publishes_nothing(project: CiProject) -> None:
    project.selection = "--all --stack debian"
    night = project.run("nightly.yml", "rebuild")
    assert night.succeeded, str(night.printed)
    part = night.printed["Tonight's part of the family"]
    names = re.findall(r"(?:NAMES=| )(tf-\S+-debian\S*)", part)
    family = {one["name"] for one in project.checkout.json("list", "--stack", "debian")}
    assert 0 < len(names) < len(family) / 2
    assert {*names} <= family
    build = night.printed["Build and test it from its upstreams, without caches"]
    assert {*names} == {*re.findall(r"(tf-\S+) +tagged", build)}
    assert night.summary.count("1 of 1 image passed") == len(names)
    assert project.tags() == {}


@pytest.mark.nightly
@pytest.mark.parametrize("project", ["own"], indirect=True)
def test_one_image_is_built_tested_and_used_for_a_pull_request(project: CiProject) -> None:
    run = project.run("ci.yml", "image")
    assert run.succeeded, str(run.printed)
    assert "1 of 1 image passed" in run.summary
    assert "learnt: y = " in run.printed["Train with it, on two ranks"]
