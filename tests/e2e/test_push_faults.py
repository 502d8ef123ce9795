"""Pushes during which something fails: the registry, the network, the push itself, another push.

Whatever fails: a rerun completes it, the repository then holds the planned tags and no others, and
at no moment did a tag stand for what was not whole, not tested or not recorded. `make test` tries
the moments between the steps of a push, `make nightly` every request and the rarer faults.
"""

import re
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from imgbuild.core.parallel import in_parallel
from imgbuild.core.settings import Settings
from imgbuild.net.repository_client import RegistryClient, connect
from imgbuild.publish.record import PublishedRepository, read_published
from support.fault_proxy import FAULTS, FaultProxy, ProxiedRequest, Traffic, fault_proxy
from support.network_namespace import forwarded
from support.own_dockerd import OwnDockerd
from support.own_registry import own_registry
from support.publishing_project import IMMUTABLE, MOVING, ONE, PublishingProject, publishing_project
from support.small_disk import SmallDisk, small_disk

STEM, (FIRST_MOVING, SECOND_MOVING) = IMMUTABLE["1.10"], MOVING["1.10"]
#: The first request of each step of a push.
MOMENTS: dict[str, Callable[[ProxiedRequest], object]] = {
    "before the content": lambda one: one.method == "POST",
    "between content and tag": lambda one: one.written.startswith(STEM),
    "before the SBOM": lambda one: one.written.endswith(".sbom"),
    "between the SBOM and the list": lambda one: re.fullmatch("sha256-[0-9a-f]+", one.written),
    "before the provenance": lambda one: one.written.endswith(".provenance"),
    "between tag and record": lambda one: one.written.endswith(".record"),
    "before the input tag": lambda one: one.written.startswith("input-"),
    "before the moving tags": lambda one: one.written == FIRST_MOVING,
    "between moving tags": lambda one: one.written == SECOND_MOVING,
    "after": lambda one: one.method == "HEAD" and one.path.endswith(f"/{SECOND_MOVING}"),
}
#: What `make test` tries; the others are like one of them.
USUAL_FAULTS = {"lost"}
USUAL_MOMENTS = {"between content and tag", "between tag and record", "before the moving tags"}
#: An engine waits five seconds and longer before it tries an upload again: pushes run side by side.
WORKERS = 4
DOCKERD_OPTIONS = ("--max-concurrent-uploads=50",)
RELEASE = "20260101.1"
#: The engine sends a layer once to one place: a push that waits for another waits for so long.
HELD_SECONDS = 8


def _nightly_but(every: Collection[str], usual: set[str]) -> list[object]:
    """Return parameters, of which `make test` tries the usual ones."""
    return [one if one in usual else pytest.param(one, marks=pytest.mark.nightly) for one in every]


@dataclass
class Repository:
    """A repository of its own behind the proxy; ``green`` are the images whose suites passed."""

    project: PublishingProject
    proxy: FaultProxy
    client: RegistryClient
    traffic: Traffic = field(default_factory=Traffic)
    green: set[str] = field(default_factory=set)
    done: threading.Event = field(default_factory=threading.Event)
    #: The digest of each immutable tag that has a record.
    fixed: dict[str, str] = field(default_factory=dict)

    def push(self, *options: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        return self.project.push(self.proxy.host, *options, code=code)

    def fail(
        self, moment: Callable[[ProxiedRequest], object], action: Callable[[], object]
    ) -> None:
        """Do something once, before the first such request; it may return a fault of that."""

        def fault(request: ProxiedRequest) -> str:
            if self.done.is_set() or not moment(request):
                return ""
            self.done.set()
            self.check()
            return str(action() or "")

        self.traffic.fault = fault

    def check(self) -> PublishedRepository:
        """Fail unless every tag is right at this moment."""
        found = read_published(self.client)
        assert not found.damaged
        recorded = {record.digest for record in found.whole}
        for record in found.records:
            digest = found.digests.get(record.tag)
            assert digest == self.fixed.setdefault(record.tag, record.digest)
        for tag in found.tags:
            if tag.startswith("input-") or tag in MOVING["1.10"]:
                digest = self.client.head(tag)
                assert digest in recorded, f"{tag} is {digest}, which has no record"
                manifest = self.client.manifest(digest)
                assert manifest
                assert any(manifest.is_image(one) for one in self.green), f"{tag} is not tested"
        return found

    def complete(self, *, releases: int = 1) -> None:
        """Push again with nothing in the way; fail unless exactly the planned tags are there."""
        self.traffic.fault = lambda _: ""
        self.push()
        found = self.check()
        assert len(found.whole) == releases
        assert not [*found.faults(), *found.notes()]
        latest = found.whole[-1]
        assert {found.digests[tag] for tag in MOVING["1.10"]} == {latest.digest}
        documents = ("sha256-[0-9a-f]+", r"sha256-.+\.sbom", r"sha256-.+\.provenance")
        for kind in (r".+\.record", "input-.+", *documents):
            assert len([tag for tag in found.tags if re.fullmatch(kind, tag)]) == releases


@pytest.fixture(scope="module")
def checkouts(
    dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory
) -> list[PublishingProject]:
    """Give two checkouts with different images for the same tags."""

    def made(word: str) -> PublishingProject:
        folder = tmp_path_factory.mktemp(word)
        project = publishing_project(folder, dockerd.host, local=f"imgbuild-{word}/tensorflow")
        project.say(word)
        project.run("build", *ONE)
        project.set_up(publishing={"attempts": 4, "first_wait": 0.05})
        return project

    return [made("pushing"), made("rival")]


@pytest.fixture(scope="module")
def project(checkouts: list[PublishingProject]) -> PublishingProject:
    return checkouts[0]


@contextmanager
def repositories(
    dockerd: OwnDockerd, project: PublishingProject, folder: Path, disk: SmallDisk | None = None
) -> Iterator[Callable[[], Repository]]:
    """Give what makes repositories of one registry, each with the state of another machine."""
    with (
        own_registry(folder / "registry", storage=disk.folder if disk else None) as registry,
        fault_proxy(registry.port) as proxy,
        forwarded(proxy.port, dockerd.pid),
    ):

        def make() -> Repository:
            name = f"ml/{uuid.uuid4().hex[:12]}"
            state = folder / name / "state"
            shutil.copytree(project.state, state)
            own = replace(project, state=state, repository=name)
            own.docker_config.mkdir()
            client = connect(f"{registry.host}/{name}", Settings(), lambda _: None, "--to")
            made = Repository(own, proxy, client, green=project.green())
            proxy.traffic[name] = made.traffic
            return made

        yield make


@pytest.fixture(scope="module")
def make(
    dockerd: OwnDockerd, project: PublishingProject, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Repository]]:
    with repositories(dockerd, project, tmp_path_factory.mktemp("repositories")) as made:
        made().push()  # the base image's layers are there from now on
        yield made


def explained(code: int | None, said: str, *words: str) -> None:
    """Fail unless a push failed as it should: by its exit code, and in words."""
    assert code in {1, 3}, said
    assert "Traceback" not in said, said
    assert [word for word in words if word not in said] == []


def at_each(moments: Collection[str], work: Callable[[str], None]) -> None:
    """Do the work at each moment, side by side; fail with every moment that failed."""

    def one(moment: str) -> str:
        try:
            work(moment)
        except Exception as error:  # noqa: BLE001 - all of them are reported
            return f"{moment}: {type(error).__name__}: {error}"
        return ""

    assert not [text for text in in_parallel(one, [*moments], WORKERS) if text]


@pytest.mark.parametrize("fault", _nightly_but(FAULTS, USUAL_FAULTS))
def test_one_request_fails(make: Callable[[], Repository], fault: str) -> None:
    """Nobody has to do anything."""

    def work(moment: str) -> None:
        repository = make()
        repository.fail(MOMENTS[moment], lambda: fault)
        repository.push()
        assert repository.done.is_set()
        repository.complete()

    at_each(MOMENTS, work)


def test_every_request_fails_from_one_on(make: Callable[[], Repository]) -> None:
    """The engine gives up after half a minute: only what imgbuild asks for."""

    def work(moment: str) -> None:
        repository = make()
        failing = threading.Event()

        def fault(request: ProxiedRequest) -> str:
            if MOMENTS[moment](request):
                failing.set()
            return "500" if failing.is_set() else ""

        repository.traffic.fault = fault
        failed = repository.push(code=None)
        explained(failed.returncode, failed.stderr, "answered 500", "run this again")
        repository.check()
        repository.complete()

    at_each(["between tag and record", "before the input tag", "between moving tags"], work)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)]
)
def test_the_push_is_ended(make: Callable[[], Repository], number: signal.Signals) -> None:
    def work(moment: str) -> None:
        repository = make()
        words = repository.project.push_words(repository.proxy.host)
        process = repository.project.start(*words)
        repository.fail(MOMENTS[moment], lambda: process.send_signal(number))
        _, stderr = process.communicate(timeout=120)
        assert repository.done.is_set()
        assert "Traceback" not in stderr
        if moment != "after":
            assert process.returncode in {-number, 130}, stderr
        wait_until_quiet(repository)
        repository.check()
        repository.complete()
        tags = repository.project.printed("images", "--format", "{{.Repository}}:{{.Tag}}")
        assert f"{repository.project.repository}:{STEM}" not in tags

    at_each(MOMENTS, work)


def wait_until_quiet(repository: Repository) -> None:
    """Wait until the engine sends nothing more for a push that has ended."""
    before = -1
    while before != len(repository.traffic.requests):
        before = len(repository.traffic.requests)
        time.sleep(0.5)


def test_the_disk_of_the_registry_is_full(
    dockerd: OwnDockerd, project: PublishingProject, tmp_path: Path
) -> None:
    """docker-registry 2.8 writes in place: what is empty afterwards its operator has to remove."""
    with (
        small_disk(tmp_path / "disk", 200 << 20) as disk,
        repositories(dockerd, project, tmp_path, disk) as make_full,
    ):
        make_full().push()
        for moment in ("between tag and record", "before the moving tags"):
            repository = make_full()
            repository.fail(MOMENTS[moment], disk.fill)
            failed = repository.push(code=None)
            disk.empty()
            assert repository.done.is_set()
            explained(failed.returncode, failed.stderr, repository.proxy.host)
            for path in disk.folder.rglob("*"):
                if path.name in {"link", "data"} and path.stat().st_size == 0:
                    path.unlink()
            repository.complete()


@pytest.mark.parametrize("moment", _nightly_but(MOMENTS, USUAL_MOMENTS))
def test_another_push_at_the_same_time(
    make: Callable[[], Repository], checkouts: list[PublishingProject], moment: str
) -> None:
    """Of another image, under the same immutable tag: who did not publish it is told, or both."""
    repository, rival = make(), checkouts[1]
    repository.green |= rival.green()
    other = replace(rival, repository=repository.project.repository)
    rivals: list[subprocess.Popen[str]] = []

    def push_too() -> None:
        words = other.push_words(repository.proxy.host, "--release", RELEASE)
        rivals.append(other.start(*words))
        with suppress(subprocess.TimeoutExpired):
            rivals[0].wait(HELD_SECONDS)

    repository.fail(MOMENTS[moment], push_too)
    mine = repository.push("--release", RELEASE, code=None)
    assert repository.done.is_set()
    _, theirs = rivals[0].communicate(timeout=120)
    results = ((mine.returncode, mine.stderr), (rivals[0].returncode, theirs))
    failed = [(code, said) for code, said in results if code]
    assert failed, "two images are published under one tag"
    for code, said in failed:
        explained(code, said, STEM)
    if len(failed) == 1:
        assert len(repository.check().whole) == 1
    for one in (other, repository.project):
        one.push(repository.proxy.host)
    repository.complete(releases=2)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FAULTS)
def test_each_request_fails(make: Callable[[], Repository], fault: str) -> None:
    first = make()
    first.push()
    numbers = [str(one.number) for one in first.traffic.requests]

    def work(number: str) -> None:
        repository = make()
        repository.fail(lambda request: request.number == int(number), lambda: fault)
        repository.push()
        repository.complete()

    at_each(numbers, work)
