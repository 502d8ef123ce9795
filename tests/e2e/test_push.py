"""Publishing and taking what is published: through TLS, with a login, on a real registry."""

import base64
import json
import re
import subprocess
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.matrix.tags import input_tag
from imgbuild.net.repository_client import RegistryClient
from support.network_namespace import forwarded
from support.own_dockerd import OwnDockerd, own_dockerd
from support.own_registry import OwnRegistry, own_registry
from support.publishing_project import (
    IMMUTABLE,
    LOCAL,
    MOVING,
    ONE,
    SUBSTITUTED,
    TWO,
    PublishingProject,
    publishing_project,
)
from support.waiting import seen_arguments

NAMES = ("tf-1.10-cpu-debian", "tf-1.11-cpu-debian")
LOGIN = ("publisher", "a pässword: with a colon")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRegistry]:
    folder = tmp_path_factory.mktemp("registry")
    with own_registry(folder, tls=True, login=LOGIN) as running:
        yield running


@pytest.fixture(scope="module")
def built(
    registry: OwnRegistry, dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PublishingProject]:
    """Give a checkout with two images that passed, and a login."""
    made = publishing_project(tmp_path_factory.mktemp("publishing"), dockerd.host)
    made.run("build", *TWO)
    made.set_up(ca_bundle=str(registry.ca), publishing={"attempts": 3, "first_wait": 0.1})
    made.log_in(registry.host, *LOGIN)
    with forwarded(registry.port, dockerd.pid):
        yield made


@pytest.fixture
def project(built: PublishingProject, tmp_path: Path) -> PublishingProject:
    """Give a copy of it that publishes to a repository of its own: no test depends on another."""
    return built.copied(tmp_path, f"ml/{uuid.uuid4().hex}")


@pytest.fixture
def client(
    project: PublishingProject, registry: OwnRegistry, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RegistryClient]:
    """Give the registry as the checkout's owner sees it."""
    monkeypatch.setenv("DOCKER_CONFIG", str(project.docker_config))
    with project.client(registry.host) as opened:
        yield opened


def _push(
    project: PublishingProject,
    registry: OwnRegistry,
    *options: str,
    selection: tuple[str, ...] = TWO,
    code: int | None = 0,
) -> subprocess.CompletedProcess[str]:
    return project.push(registry.host, *options, selection=selection, code=code)


def test_two_images_in_one_go_and_then_nothing_to_do(
    project: PublishingProject, registry: OwnRegistry, client: RegistryClient
) -> None:
    planned = _push(project, registry, "--dry-run", "--json")
    assert all("push" in one["to_do"] for one in json.loads(planned.stdout)["images"])
    assert client.tags() == ()
    with seen_arguments() as arguments:
        result = _push(project, registry, "--json")
    assert [line for line in arguments if project.repository in line]
    secrets = (LOGIN[1], base64.b64encode(":".join(LOGIN).encode()).decode())
    assert not [line for line in arguments if any(secret in line for secret in secrets)]
    said = json.loads(result.stdout)["published"]
    immutable = {one["tag"] for one in said}
    assert {tag.rpartition("-")[0] for tag in immutable} == {*IMMUTABLE.values()}
    records = {f"{tag}.record" for tag in immutable}
    moving = {tag for tags in MOVING.values() for tag in tags}
    beside = {*client.tags()} - immutable - records - moving
    kinds = Counter(tag.partition("-")[0] for tag in beside)
    # The list of what refers to an image, its SBOM and its provenance.
    assert kinds == {**dict.fromkeys(("input", "push"), len(NAMES)), "sha256": 6}
    again = _push(project, registry, "--json")
    assert [one["done"] for one in json.loads(again.stdout)["published"]] == [[], []]
    for text in (result.stderr, result.stdout, again.stderr):
        assert LOGIN[1] not in text
    source = f"{registry.host}/{project.repository}"
    found = project.json("release", "list", "--from", source, "--check")
    # They were pushed side by side: either may have been published first.
    assert sorted(one["image"] for one in found) == sorted(NAMES)
    for one in found:
        assert [(suite["suite"], suite["passed"]) for suite in one["suites"]] == [("bytes", 1)]
        tags = (one["tag"], *one["points_here"], input_tag(one["input_digest"]))
        assert {client.head(tag) for tag in tags} == {one["digest"]}
        assert (one["pins"]["python"], one["size"] > 60_000) == ("3.6.15", True)
        assert SUBSTITUTED in one["substitutes"]
    points = {tag for one in found for tag in one["points_here"]}
    assert points >= moving


def test_another_machine_pulls_and_tests_what_is_published(
    project: PublishingProject, registry: OwnRegistry
) -> None:
    """The results are unsigned, so that machine publishes the image only after it builds it."""
    _push(project, registry)
    with own_dockerd() as engine, forwarded(registry.port, engine.pid):
        other = replace(project, state=project.state.parent / "another", host=engine.host)
        other.set_up(engine={"host": engine.host})
        source = ("--pull", "--from", f"{registry.host}/{project.repository}")
        plan = other.run("build", *TWO, *source, "--dry-run")
        assert plan.stdout.count("would be pulled from") == 2, plan.stdout + plan.stderr
        result = other.run("build", *TWO, *source)
        assert "building" not in result.stderr
        assert "testing" in result.stderr
        names = other.printed("images", "--format", "{{.Repository}}:{{.Tag}}").split()
        assert len([name for name in names if name.startswith(LOCAL)]) == 4
        assert not [name for name in names if name.startswith(registry.host)]
        assert other.plan("1.10")["action"] == "nothing"
        refused = _push(other, registry, selection=ONE, code=1).stderr
        (remedy,) = re.findall("no record that this machine built it: run `docker (.+?)`", refused)
        other.docker(*remedy.split(), code=0)
        (made,) = other.json("build", *ONE)
        assert (made["action"], made["state"]) == ("build", "done")
        _push(other, registry, "--dry-run", selection=ONE)


def _digests(client: RegistryClient) -> dict[str, str | None]:
    return {tag: client.head(tag) for tag in client.tags()}


def test_who_may_not_and_an_unknown_authority_are_told(
    project: PublishingProject, registry: OwnRegistry, client: RegistryClient
) -> None:
    _push(project, registry, selection=ONE)
    before = _digests(client)
    assert before
    project.log_in(registry.host, LOGIN[0], "another password")
    result = _push(project, registry, code=1)
    assert f"docker login {registry.host}" in result.stderr
    assert "another password" not in result.stdout + result.stderr
    (project.docker_config / "config.json").unlink()
    assert f"docker login {registry.host}" in _push(project, registry, code=1).stderr
    project.log_in(registry.host, *LOGIN)
    assert _digests(client) == before
    project.set_up(ca_bundle=None)
    assert "certificate" in _push(project, registry, code=3).stderr


def test_what_is_substituted_or_has_not_passed_is_refused_by_name(
    project: PublishingProject, registry: OwnRegistry, client: RegistryClient
) -> None:
    # The images passed all their suites: nothing else is in their way.
    refused = project.run("push", *TWO, "--to", f"{registry.host}/{project.repository}", code=1)
    both = f"{', '.join(NAMES)} are not published: "
    assert both in refused.stderr
    assert refused.stderr.count(SUBSTITUTED) == 1
    assert "suite" not in refused.stderr
    # Under another name here: the engine's images that passed are those of the other tests.
    project.edit("matrix.yaml", f"repository: {LOCAL}", "repository: imgbuild-untested/tensorflow")
    project.say("untested")
    changed = _push(project, registry, code=1)
    assert f"{both}no image has the inputs" in changed.stderr
    project.run("build", *TWO, "--no-test")
    untested = _push(project, registry, code=1)
    for name in NAMES:
        assert f"{name} is not published: no suite was run on this image" in untested.stderr
    assert client.tags() == ()


def test_old_releases_are_retired_then_deleted_and_the_latest_has_all_it_had(
    project: PublishingProject, registry: OwnRegistry, client: RegistryClient
) -> None:
    """The last one: it builds another image in the place of what the others push."""
    _push(project, registry, "--release", "20261101.1", selection=ONE)
    first = _digests(client)
    (old,) = {tag for tag in first if tag.endswith("20261101.1")}
    project.say(uuid.uuid4().hex)
    project.run("build", *ONE)
    _push(project, registry, selection=ONE)
    source = ("--from", f"{registry.host}/{project.repository}")
    project.run("release", "retire", old, "--reason", "too old", *source)
    assert "too old" in project.run("release", "list", *source, "--check").stdout
    before = _digests(client)
    going = project.json("release", "prune", "--keep", "1", *source)["tags"]
    assert {old, f"{old}.record"} < {*going}
    assert _digests(client) == before
    assert {*project.json("release", "prune", "--keep", "1", "--yes", *source)["deleted"]} == {
        *going
    }
    assert _digests(client) == {tag: one for tag, one in before.items() if tag not in going}
    (left,) = project.json("release", "list", *source, "--check")
    assert {*left["points_here"]} == {*MOVING["1.10"]}
    client.blob(client.manifest(left["tag"]).config_digest)  # type: ignore[union-attr]
