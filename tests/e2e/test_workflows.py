"""The workflows' own steps, executed: a pin is changed, and exactly what uses it is published."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from ci_project import LOCAL, PASSWORD, CiProject, ci_project
from copied_checkout import remove_images
from own_registry import own_registry
from publishing_project import publishing_project

from imgbuild.engine.endpoint import resolve_host
from imgbuild.settings import EngineSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actions.runner import WorkflowRun
    from imgbuild.engine.client import Engine

#: The row whose Horovod is changed, and what its image is called before the release.
ROW = "  - {tensorflow: 1.13.1, stack: debian, variants: [cpu], horovod: 0.16.1"
CHANGED, TAG = "tf-1.13-cpu-debian", "1.13.1-cpu-py36-openmpi4.1.4-debian12"
OTHER_TAG = "1.12.0-cpu-py36-openmpi4.1.4-debian12"
BUILD = "Build and test it from its upstreams, without caches"


@pytest.fixture
def project(
    request: pytest.FixtureRequest, tmp_path: Path, host: str | None, engine: Engine
) -> Iterator[CiProject]:
    """Give a repository of images: ``tiny``, ``real`` ones, or the user's ``own``, which stay."""
    login = ("ci", PASSWORD)
    with own_registry(tmp_path / "registry", login=login) as registry:
        address = host or resolve_host(EngineSettings()) or ""
        selection = "--tf 1.12 --tf 1.13 --stack debian"
        made = ci_project(tmp_path, address, registry, selection)
        if request.param != "own":
            made.edit("matrix.yaml", "repository: imgbuild/tensorflow", f"repository: {LOCAL}")
        if request.param == "tiny":
            _make_tiny(made, tmp_path, address)
        made.imgbuild("render")
        made.commit("first")
        yield made
        remove_images(engine, LOCAL)


def _make_tiny(project: CiProject, folder: Path, host: str) -> None:
    """Give the repository templates and suites of images that are built in a second."""
    (folder / "tiny").mkdir()
    tiny = publishing_project(folder / "tiny", host, local=LOCAL)
    for part in ("images/templates", "tests/image"):
        shutil.rmtree(project.root / part)
        shutil.copytree(tiny.root / part, project.root / part)


def _planned(run: WorkflowRun) -> list[str]:
    """Return the images that the plan job listed, in the order of their names."""
    (plan,) = run.of("plan")
    entries: list[dict[str, Any]] = json.loads(plan.outputs["shards"])["include"]
    return sorted(name for entry in entries for name in entry["images"].split())


def _succeeded(run: WorkflowRun) -> None:
    assert all(job.result != "failure" for job in run.jobs), run.said
    assert PASSWORD not in run.said


def _releases(tags: dict[str, str], release: str) -> set[str]:
    return {tag for tag in tags if f"-{release}" in tag}


@pytest.mark.parametrize(
    "project", ["tiny", pytest.param("real", marks=pytest.mark.nightly)], indirect=True
)
def test_a_changed_pin_is_all_that_is_published(project: CiProject) -> None:
    first = project.push("images.yml")
    _succeeded(first)
    assert _planned(first) == ["tf-1.12-cpu-debian", CHANGED]
    before = project.tags()
    assert len(_releases(before, _release(first))) == 4  # two images, two records

    project.edit("matrix.yaml", ROW, ROW.replace("0.16.1", "0.16.4"))
    project.imgbuild("render")
    project.commit("Horovod 0.16.4")
    listed = json.loads(project.imgbuild("matrix", "--changed-since", "HEAD~1"))
    assert [one["name"] for one in listed] == [CHANGED]

    second = project.push("images.yml")
    _succeeded(second)
    assert _planned(second) == [CHANGED]
    after = project.tags()
    immutable = f"{TAG}-{_release(second)}"
    assert {*after} - {*before} == {immutable, f"{immutable}.record"}
    moved = {tag for tag in before if before[tag] != after[tag]}
    assert moved == {"1.13.1-cpu-debian", "1.13-cpu-debian", "index"}
    assert {after[tag] for tag in moved - {"index"}} == {after[immutable]}

    third = project.push("images.yml")
    _succeeded(third)
    assert _planned(third) == []
    assert third.result("publish") == "skipped"
    assert project.tags() == after


@pytest.mark.parametrize("project", ["tiny"], indirect=True)
def test_a_shard_that_fails_publishes_nothing_and_the_next_run_makes_up_for_it(
    project: CiProject,
) -> None:
    suite, good = "tests/image/test_bytes.py", 'strip() == "60000"'
    project.edit(suite, good, f'{good} and "0.16.1" not in host.check_output("python")')
    project.commit("a suite that TensorFlow 1.13 fails")
    first = project.push("images.yml")
    assert sorted(job.result for job in first.of("publish")) == ["failure", "success"]
    (failed,) = (job for job in first.of("publish") if job.result == "failure")
    pushing = [
        failed.step(name).result for name in ("Build and test", "Push what passed", "Log out")
    ]
    assert pushing == ["failure", "skipped", "success"]
    assert "### Failures" in "".join(project.summaries)
    assert _releases(project.tags(), _release(first)) == {
        f"{OTHER_TAG}-{_release(first)}",
        f"{OTHER_TAG}-{_release(first)}.record",
    }

    project.edit(suite, ' and "0.16.1" not in host.check_output("python")', "")
    project.commit("a better suite")
    second = project.push("images.yml")
    _succeeded(second)
    assert _planned(second) == [CHANGED]
    assert f"{TAG}-{_release(second)}" in project.tags()


@pytest.mark.parametrize("project", ["tiny"], indirect=True)
def test_a_night_rebuilds_its_part_and_publishes_nothing(project: CiProject) -> None:
    run = project.push("nightly.yml", ["rebuild"], SELECTION="--all --stack debian")
    _succeeded(run)
    (job,) = run.of("rebuild")
    said = job.step("Tonight's part of the family").said
    assert re.fullmatch(r"NAMES=--name tf-\S+-debian\S*\n", said)  # 14 images in 14 nights
    assert f"{said.split()[-1]}  named" in job.step(BUILD).said
    assert "1 of 1 image passed" in "".join(project.summaries)
    assert project.tags() == {}


@pytest.mark.parametrize("project", ["tiny"], indirect=True)
def test_another_branch_publishes_nothing(project: CiProject) -> None:
    run = project.push("images.yml", to="feature")
    assert [(job.id, job.result) for job in run.jobs] == [
        ("plan", "skipped"),
        ("publish", "skipped"),
    ]
    assert project.tags() == {}


@pytest.mark.nightly
@pytest.mark.parametrize("project", ["own"], indirect=True)
def test_one_image_is_built_tested_and_used_for_a_pull_request(project: CiProject) -> None:
    run = project.push("ci.yml", ["image"])
    _succeeded(run)
    assert "1 of 1 image passed" in "".join(project.summaries)
    (job,) = run.of("image")
    assert "learnt: y = " in job.step("Train with it, on two ranks").said


def _release(run: WorkflowRun) -> str:
    (plan,) = run.of("plan")
    return plan.outputs["release"]
