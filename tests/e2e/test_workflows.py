"""The workflows' own steps, executed: a pin is changed, and exactly what uses it is published."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ci_project import LOCAL, PASSWORD, CiProject, Publication, ci_project
from copied_checkout import remove_images
from own_registry import own_registry
from publishing_project import publishing_project

from imgbuild.engine.client import Engine
from imgbuild.engine.discovery import resolve_host
from imgbuild.settings import EngineSettings
from releases import release_of

#: The row whose Horovod is changed, and what its image is called before the release.
RELEASE = release_of("1.13")
ROW = f"  - {{tensorflow: {RELEASE}, stack: debian, variants: [cpu], horovod: 0.16.1"
CHANGED, TAG = "tf-1.13-cpu-debian", f"{RELEASE}-cpu-py36-openmpi4.1.4-debian12"
OTHER_TAG = f"{release_of('1.12')}-cpu-py36-openmpi4.1.4-debian12"


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


def _succeeded(publication: Publication) -> None:
    assert all(shard.succeeded for shard in publication.shards), publication.printed
    assert PASSWORD not in publication.printed


def _images(tags: dict[str, str]) -> set[str]:
    """Return the tags of images, without records, input digests and kept artifacts."""
    other = re.compile(r"\.record$|^(input|verdicts|wheel)-|^index$")
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

    project.edit("matrix.yaml", ROW, ROW.replace("0.16.1", "0.16.4"))
    project.imgbuild("render")
    project.commit("Horovod 0.16.4")
    listed = json.loads(project.imgbuild("matrix", "--changed-since", "HEAD~1"))
    assert [one["name"] for one in listed] == [CHANGED]

    second = project.publish()
    _succeeded(second)
    assert second.planned == [CHANGED]
    after = project.tags()
    immutable = f"{TAG}-{second.release}"
    assert _images(after) - _images(before) == {immutable}
    moved = {tag for tag in _images(before) if before[tag] != after[tag]}
    assert moved == {f"{RELEASE}-cpu-debian", "1.13-cpu-debian"}
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
    project.edit(suite, good, f'{good} and "0.16.1" not in host.check_output("python")')
    project.commit("a suite that TensorFlow 1.13 fails")
    first = project.publish()
    assert sorted(shard.succeeded for shard in first.shards) == [False, True]
    (failed,) = (shard for shard in first.shards if not shard.succeeded)
    results = [failed.results[n] for n in ("Build and test", "Push what passed", "Log out")]
    assert results == ["failure", "skipped", "success"]
    assert "### Failures" in failed.summary
    released = {tag for tag in _images(project.tags()) if f"-{first.release}" in tag}
    assert released == {f"{OTHER_TAG}-{first.release}"}

    project.edit(suite, ' and "0.16.1" not in host.check_output("python")', "")
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
    assert night.succeeded, night.printed
    part = night.printed["Tonight's part of the family"]
    assert re.fullmatch(r"NAMES=--name tf-\S+-debian\S*\n", part)  # 14 images in 14 nights
    build = night.printed["Build and test it from its upstreams, without caches"]
    assert f"{part.split()[-1]}  named" in build
    assert "1 of 1 image passed" in night.summary
    assert project.tags() == {}


@pytest.mark.nightly
@pytest.mark.parametrize("project", ["own"], indirect=True)
def test_one_image_is_built_tested_and_used_for_a_pull_request(project: CiProject) -> None:
    run = project.run("ci.yml", "image")
    assert run.succeeded, run.printed
    assert "1 of 1 image passed" in run.summary
    assert "learnt: y = " in run.printed["Train with it, on two ranks"]
