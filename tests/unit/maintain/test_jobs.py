"""The images that CI has to build: all, missing, outdated, in shards, in each format; `matrix`."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings, base_setting
from imgbuild.doctor.diagnosis import write_settings
from imgbuild.engine.types import AMD64, ARM64
from imgbuild.inputs import build_inputs as inputs
from imgbuild.inputs.base import BOOTSTRAPPED, Base
from imgbuild.maintain.jobs import (
    GITHUB_JOBS,
    NOT_PUBLISHED,
    Job,
    JobOptions,
    divide_images,
    github_text,
    gitlab_text,
    parse_shard,
    select_jobs,
)
from imgbuild.matrix.images import Image, with_other_architectures
from imgbuild.matrix.selection import Selection, select_images
from imgbuild.matrix.tags import input_tag
from imgbuild.net.repository_client import RegistryClient
from imgbuild.plan.digest import InputReader, input_digest
from support.memory_registry import MemoryRegistry
from support.project_copy import NO_ENGINE, ROOT, ProjectCopy, command, copied, loaded

ONE, TWO, GPU = "tf-2.2-cpu-debian", "tf-2.3-cpu-debian", "tf-2.2-gpu-ubuntu"
WHERE = "registry.test/team/app"
MISSING = JobOptions(missing=True, repository=WHERE)
MADE = Base("imgbuild/base:debian-12-b", f"sha256:{'b' * 64}", BOOTSTRAPPED, Path("/base"))


@dataclass(frozen=True)
class Checkout(ProjectCopy):
    """A copy of the real checkout, on a machine that makes Debian's base image itself."""

    project: Project
    settings: Settings

    @property
    def root(self) -> Path:
        return self.project.root


@pytest.fixture
def checkout(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    made = copied(project, tmp_path / "checkout")
    settings = Settings(base={"debian-12": base_setting("bootstrap")})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(inputs, "prepare_uv", lambda _: Path("/uv"))
    write_settings(settings, made.settings_file, Settings())
    return Checkout(made, settings)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> MemoryRegistry:
    """Return the registry that ``--missing`` asks."""
    made = MemoryRegistry(WHERE)

    def opened(repository: str, *_: object, **__: object) -> RegistryClient:
        assert repository == WHERE
        return made

    monkeypatch.setattr("imgbuild.net.repository_client.connect", opened)
    return made


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let no base image be there yet; return the list of those that are made."""
    bases: list[str] = []

    def bootstrap(image: Image, *_: object, **__: object) -> Base:
        bases.append(image.os_name)
        return MADE

    monkeypatch.setattr(inputs, "find_bootstrapped", lambda *_: MADE if bases else None)
    monkeypatch.setattr("imgbuild.build.bases.bootstrap_base", bootstrap)
    return bases


@pytest.fixture
def _base(made: list[str]) -> None:
    """Let this machine have made its base image."""
    made.append("debian-12")


def _images(checkout: Checkout, *names: str) -> tuple[Image, ...]:
    names = names or (ONE, TWO, GPU)
    return select_images(loaded(checkout.project), Selection(names=names))


def _chosen(
    checkout: Checkout, options: JobOptions, *names: str
) -> tuple[list[dict[str, Any]], list[Job]]:
    return select_jobs(checkout.project, _images(checkout, *names), options, print)


def _reasons(checkout: Checkout, options: JobOptions, *names: str) -> dict[str, str]:
    listed, _ = _chosen(checkout, options, *names)
    return {image["name"]: image["reason"] for image in listed}


def _publish(checkout: Checkout, registry: MemoryRegistry, *names: str) -> None:
    """Let the images be published as they are now."""
    images = _images(checkout, *names)
    seen = inputs.prepare_inputs(images, checkout.settings, checkout.project)
    reader = InputReader(checkout.project)
    for image in images:
        registry.add_image(input_tag(input_digest(image, seen, reader).total))


@pytest.mark.usefixtures("_base")
def test_missing_is_by_digest_and_outdated_is_what_lacks_security_fixes_too(
    checkout: Checkout, registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _reasons(checkout, MISSING) == dict.fromkeys((GPU, ONE, TWO), NOT_PUBLISHED)
    _publish(checkout, registry, ONE, TWO)
    registry.add_image(input_tag(f"sha256:{'1' * 64}"))
    assert _reasons(checkout, MISSING) == {GPU: NOT_PUBLISHED}
    outdated = "imgbuild.maintain.outdated.outdated_images"
    monkeypatch.setattr(outdated, lambda *_: {ONE: "no openssl"})
    found = _reasons(checkout, replace(MISSING, outdated=True))
    assert found == {ONE: "no openssl", GPU: NOT_PUBLISHED}
    _publish(checkout, registry, GPU)
    assert _reasons(checkout, MISSING) == {}
    assert run("--missing", "--from", WHERE, GPU, project=checkout.root) == "[]\n"
    assert registry.closed


@pytest.mark.usefixtures("registry")
def test_bases_are_made_before_fixes_are_asked_for(
    checkout: Checkout, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made_before: list[list[str]] = []

    def outdated(*_: object) -> dict[str, str]:
        made_before.append([*made])
        return {}

    monkeypatch.setattr("imgbuild.maintain.outdated.outdated_images", outdated)
    _chosen(checkout, replace(MISSING, outdated=True, make_bases=True), ONE)
    assert made_before == [["debian-12"]]


def test_bases_are_made_once_and_without_a_registry(
    checkout: Checkout, registry: MemoryRegistry, made: list[str]
) -> None:
    """So that a job can make them before it logs in, and makes none while it is logged in."""
    listed, _ = _chosen(checkout, JobOptions(make_bases=True), ONE, GPU)
    assert all(image["input_digest"].startswith("sha256:") for image in listed)
    assert (made, registry.calls) == (["debian-12"], [])
    _publish(checkout, registry, ONE)
    assert _reasons(checkout, MISSING, ONE, TWO) == {TWO: NOT_PUBLISHED}
    assert made == ["debian-12"]
    made.clear()
    with pytest.raises(MachineError, match="doctor --write") as caught:
        _reasons(checkout, MISSING, ONE)
    assert (caught.value.exit_code, made) == (3, []), "a digest without its base is of no use"
    assert _reasons(checkout, replace(MISSING, make_bases=True), ONE) == {}
    assert made == ["debian-12"]


def test_each_shard_finds_the_part_that_all_shards_list(checkout: Checkout) -> None:
    listed, jobs = _chosen(checkout, JobOptions(shards=2))
    assert [job.shard for job in jobs] == ["1/2", "2/2"]
    for number, job in enumerate(jobs, 1):
        part, part_jobs = _chosen(checkout, JobOptions(shard=(number, 2)))
        assert [image["name"] for image in part] == [image.name for image in job.images]
        assert part == [image for image in listed if image["shard"] == job.shard]
        assert [single.images for single in part_jobs] == [(image,) for image in job.images]
    assert _chosen(checkout, JobOptions(shard=(4, 4))) == ([], [])
    assert len(_chosen(checkout, JobOptions(shards=4))[1]) == 3


@pytest.mark.parametrize("count", [1, 3, 100])
def test_each_image_is_in_exactly_one_shard(
    images: dict[str, Image], project: Project, count: int
) -> None:
    found = divide_images([*images.values()], project, count, {})
    assert sorted(image.name for shard in found for image in shard) == sorted(images)
    order = [*images]
    places = [[order.index(image.name) for image in shard] for shard in found]
    assert places == sorted(map(sorted, places)), "the order of the images"
    assert [] not in places


@pytest.mark.usefixtures("_base", "registry")
def test_shards_are_dealt_by_the_times_in_records(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except for --shard, where each job divides for itself and has to find the same."""
    names = ("tf-2.2-cpu-debian", "tf-2.3-cpu-debian", "tf-2.6-cpu-debian", "tf-2.7-cpu-debian")
    times = dict.fromkeys(names, 10.0) | {names[1]: 900.0}
    monkeypatch.setattr("imgbuild.publish.record.read_build_seconds", lambda _: times)
    _, jobs = _chosen(checkout, replace(MISSING, shards=2), *names)
    assert sorted(len(job.images) for job in jobs) == [1, 3]
    _, part = _chosen(checkout, replace(MISSING, shard=(1, 2)), *names)
    assert len(part) == 2


@pytest.mark.parametrize(
    "text", ["0/4", "5/4", "x", "", "1", "/4", "1/", "1/0", "-1/4", "1/4/4", "1/1001", "\uff11/4"]
)
def test_a_wrong_shard_is_refused(text: str) -> None:
    assert (parse_shard("1/4"), parse_shard("4/4")) == ((1, 4), (4, 4))
    with pytest.raises(InputError, match=r"for example 1/4"):
        parse_shard(text)


@pytest.fixture
def single(images: dict[str, Image]) -> list[Job]:
    return [Job((images[name],)) for name in (ONE, GPU)]


@pytest.fixture
def sharded(images: dict[str, Image]) -> list[Job]:
    return [Job((images[ONE], images[GPU]), "1/4"), Job((images[TWO],), "2/4")]


@pytest.mark.usefixtures("made")
def test_json_says_all_that_is_known(checkout: Checkout, images: dict[str, Image]) -> None:
    ((found,), _) = _chosen(checkout, JobOptions(shard=(1, 1)), ONE)
    facts = {"name": ONE, "variant": "cpu", "stack": "debian", "mpi": images[ONE].mpi_name}
    assert facts.items() <= found.items()
    assert (found["input_digest"], found["reason"], found["shard"]) == (None, "selected", "1/1")
    assert json.loads(run(ONE, project=checkout.root)) == [
        {key: value for key, value in found.items() if key != "shard"}
    ]


def test_github_has_one_entry_an_image_or_a_shard_on_one_line(
    single: list[Job], sharded: list[Job]
) -> None:
    text = github_text(single)
    assert "\n" not in text
    facts = {"name": GPU, "images": GPU, "names": f"{GPU}", "gpu": True}
    assert facts.items() <= json.loads(text)["include"][1].items()
    names = f"{ONE} {GPU}"
    assert json.loads(github_text(sharded))["include"] == [
        {"shard": "1/4", "images": names, "names": names, "gpu": True, "platform": AMD64},
        {"shard": "2/4", "images": TWO, "names": TWO, "gpu": False, "platform": AMD64},
    ]
    assert github_text([]) == '{"include":[]}'


def test_jobs_have_images_for_one_platform(checkout: Checkout) -> None:
    """They need machines for it, and their images are published separately."""
    words = ("--all", "--platform", "all", "--shards", "2")
    entries = json.loads(run(*words, "--format", "github", project=checkout.root))["include"]
    assert {(entry["shard"], entry["platform"]) for entry in entries} == {
        (shard, platform) for shard in ("1/2", "2/2") for platform in (AMD64, ARM64)
    }
    for entry in entries:
        is_arm64 = entry["platform"] == ARM64
        assert all(name.endswith("-arm64") == is_arm64 for name in entry["names"].split())
    named = [name for entry in entries for name in entry["names"].split()]
    family = with_other_architectures(checkout.images)
    assert sorted(named) == sorted(image.name for image in family)
    pipeline = yaml.safe_load(run(*words, "--format", "gitlab", project=checkout.root))
    assert len(pipeline) == 4
    (listed,) = json.loads(run("2.18-cpu", "--platform", ARM64, project=checkout.root))
    assert (listed["name"], listed["platform"]) == ("tf-2.18-cpu-debian-arm64", ARM64)
    assert json.loads(run("2.18-cpu-arm64", project=checkout.root)) == [listed]


@pytest.mark.usefixtures("_base")
def test_images_of_one_release_are_built_together(
    checkout: Checkout, registry: MemoryRegistry
) -> None:
    """Published alone, an image would be in a release without an index."""
    own, other = "tf-2.18-cpu-debian", "tf-2.18-cpu-debian-arm64"
    assert _reasons(checkout, MISSING, own, other) == dict.fromkeys((own, other), NOT_PUBLISHED)
    _publish(checkout, registry, own)
    reasons = _reasons(checkout, MISSING, own, other)
    assert reasons[other] == NOT_PUBLISHED
    assert other in reasons[own]
    assert _reasons(checkout, MISSING, own) == {}, "only this platform is published"
    _publish(checkout, registry, other)
    assert _reasons(checkout, MISSING, own, other) == {}


def test_gpu_images_are_left_out_before_the_platform_is_chosen(checkout: Checkout) -> None:
    words = ("--tf", "2.18", "--without-gpu", "--platform", ARM64)
    (listed,) = json.loads(run(*words, project=checkout.root))
    assert listed["name"] == "tf-2.18-cpu-debian-arm64"


def test_more_jobs_than_github_runs(single: list[Job]) -> None:
    jobs = single[:1] * GITHUB_JOBS
    assert len(json.loads(github_text(jobs))["include"]) == 256
    with pytest.raises(InputError, match=r"257 .*256.*--shards"):
        github_text([*jobs, jobs[0]])


def test_gitlab_has_one_job_an_image_or_a_shard(single: list[Job], sharded: list[Job]) -> None:
    assert [*yaml.safe_load(gitlab_text(single))] == [ONE, GPU]
    first, second = yaml.safe_load(gitlab_text(sharded)).items()
    variables = {
        "IMGBUILD_IMAGES": f"{ONE} {GPU}",
        "IMGBUILD_NAMES": f"{ONE} {GPU}",
        "IMGBUILD_GPU": "true",
        "IMGBUILD_PLATFORM": AMD64,
    }
    assert first == ("shard 1 of 4", {"extends": ".imgbuild", "variables": variables})
    assert second[1]["variables"]["IMGBUILD_GPU"] == "false"
    # GitLab takes no pipeline without a job.
    nothing = {"nothing to build": {"extends": ".imgbuild", "script": ["true"]}}
    assert yaml.safe_load(gitlab_text([])) == nothing


def run(*options: str, project: Path = ROOT, **env: str) -> str:
    words = ("matrix", *options, "--project", str(project))
    return command(*words, env={**NO_ENGINE, **env}).stdout


def test_github_without_gpus_and_a_drifted_dockerfile(checkout: Checkout) -> None:
    options = ("--format", "github", "--without-gpu")
    text = run(*options, project=checkout.root)
    assert text.count("\n") == 1
    listed = [one["name"] for one in json.loads(text)["include"]]
    assert listed == [image.name for image in checkout.images if image.variant == "cpu"]
    checkout.replace("images/templates/partials/mpi-index.j2", "sh /run/mpi", "sh -x /run/mpi")
    with pytest.raises(InputError, match="imgbuild render"):
        run(*options, project=checkout.root)


def test_digest_is_unknown_until_base_is_made(checkout: Checkout, made: list[str]) -> None:
    ((unmade,), _) = _chosen(checkout, JobOptions(), ONE)
    assert (unmade["input_digest"], unmade["reason"], made) == (None, "selected", [])
    ((listed,), _) = _chosen(checkout, JobOptions(make_bases=True), ONE)
    assert listed["input_digest"].startswith("sha256:")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--shard 1/4 --shards 4", "either --shard .* or --shards"),
        ("--from x", "--from requires --missing"),
        ("--missing", "publishing"),
        ("--outdated", "publishing"),
        ("--gpu --without-gpu", "leaves no image"),
    ],
)
def test_wrong_input_is_refused(options: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        run(*options.split())


def test_a_registry_that_cannot_be_reached(tmp_path: Path) -> None:
    quick = tmp_path / "settings.yaml"
    quick.write_text("publishing: {attempts: 1, first_wait: 0}\n", encoding="utf-8")
    with pytest.raises(MachineError, match="localhost:1"):
        run("--missing", "--from", "localhost:1/x", IMGBUILD_SETTINGS=str(quick))
