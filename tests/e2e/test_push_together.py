"""Two pushes into one repository at once, and someone else who moves a tag in between."""

from __future__ import annotations

import subprocess
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest
import requests as http
from fault_counts import FaultCounts, injected
from publishing_project import MOVING, ONE, REPOSITORY, publishing_project
from push_kit import PATIENT, at_each, explained, of_another_machine, said
from test_push_faults import dockerd, kits, project, requests  # noqa: F401  # fixtures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from own_dockerd import OwnDockerd
    from publishing_project import PublishingProject
    from push_kit import PushKit
    from registry_proxy import Asked

pytestmark = pytest.mark.nightly

#: How long one push is held while the other one runs. It must end: where both want one engine to
#: send one layer to one place, the engine sends it once, and the other waits for the held one.
HELD_SECONDS = 8
ROUNDS = 12
OTHERS = ("--tf", "1.11")

Result = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def rival(
    dockerd: OwnDockerd,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> PublishingProject:
    """Give a checkout with another image for the same tags."""
    local = "imgbuild-rival/tensorflow"
    made = publishing_project(tmp_path_factory.mktemp("rival"), dockerd.host, local=local)
    made.say("rival")
    made.build(*ONE)
    return made


@pytest.fixture
def other_kits(
    kits: list[PushKit],  # noqa: F811
    rival: PublishingProject,
) -> Iterator[list[PushKit]]:
    """Give the kits, in which the rival's image counts as tested too."""
    known = rival.green()
    for kit in kits:
        kit.state.green = partial(_with, kit.project, known)
    yield kits
    for kit in kits:
        kit.state.green = kit.project.green


def _with(project: PublishingProject, others: set[str]) -> set[str]:  # noqa: F811
    return project.green() | others


def _held(kit: PushKit, at: int, other: PublishingProject) -> tuple[Result, Result]:
    """Push, and hold it before its request number ``at`` while the other one pushes."""
    started: list[subprocess.Popen[str]] = []

    def push_too(asked: Asked) -> None:
        if asked.number == at and not started:
            started.append(other.start(*other.push_words(kit.proxy.host)))
            try:
                started[0].wait(HELD_SECONDS)
            except subprocess.TimeoutExpired:
                return

    kit.proxy.before = push_too
    mine = kit.push()
    kit.proxy.before = None
    injected(started)
    return mine, _ended(started[0])


def _ended(process: subprocess.Popen[str]) -> Result:
    stdout, stderr = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def _complete(
    kit: PushKit, others: PublishingProject, results: tuple[Result, Result], releases: int
) -> str:
    """Let both push again, and fail unless all is there; return ``survived`` or ``rerun``.

    All must be there before that if both said so. If one failed, the moving tags must be at an
    image with a record, unless it said that they were moved.
    """
    failed = [result for result in results if result.returncode]
    for result in failed:
        explained(result, "tf-1.10-cpu-debian")
    if not failed:
        kit.check("1.10", releases=releases)
    elif not any("was moved by someone else" in result.stderr for result in failed):
        kit.state.race = False
    kit.state.check()
    before = kit.state.storage.tags()
    for project in (kit.project, others):  # noqa: F402
        again = project.push(kit.proxy.host)
        assert again.returncode == 0, f"the rerun: {said(again)}"
    tags = kit.check("1.10", releases=releases)
    return "survived" if before == tags and not failed else "rerun"


def test_the_same_image_by_two_machines(
    kits: list[PushKit],  # noqa: F811
    requests: range,  # noqa: F811
) -> None:
    """One is held before each of its requests in turn, while the other does all that it can."""

    def work(kit: PushKit, at: int) -> str:
        other = of_another_machine(kit.project, kit.registry.folder / f"other-{at}")
        return _complete(kit, other, _held(kit, at, other), 1)

    with FaultCounts("two machines push the same image, one held before a request") as counts:
        at_each(kits, requests, counts.each(work))


def test_two_images_of_the_same_names(
    other_kits: list[PushKit],
    rival: PublishingProject,
    requests: range,  # noqa: F811
) -> None:
    """Both are published in the end, each under a release of its own, and none is overwritten."""
    what = "two machines push two images of the same names, one held before a request"

    def work(kit: PushKit, at: int) -> str:
        kit.state.race = True
        other = of_another_machine(rival, kit.registry.folder / f"rival-{at}")
        return _complete(kit, other, _held(kit, at, other), 2)

    with FaultCounts(what) as counts:
        at_each(other_kits, requests, counts.each(work))


@pytest.mark.parametrize("same", [True, False])
def test_at_the_same_moment(
    other_kits: list[PushKit], rival: PublishingProject, *, same: bool
) -> None:
    """As chance has it, several times."""
    what = "the same image" if same else "two images of the same names"

    def work(kit: PushKit, at: int) -> str:
        kit.state.race = not same
        of = kit.project if same else rival
        other = of_another_machine(of, kit.registry.folder / f"moment-{same}-{at}")
        started = [one.start(*one.push_words(kit.proxy.host)) for one in (kit.project, other)]
        first, second = map(_ended, started)
        return _complete(kit, other, (first, second), 1 if same else 2)

    with FaultCounts(f"two machines push {what} at the same moment") as counts:
        at_each(other_kits, range(1, ROUNDS + 1), counts.each(work))


def test_twice_on_one_machine(kits: list[PushKit]) -> None:  # noqa: F811
    """The second one is told that the first one is at work, or finds that all is done."""

    def work(kit: PushKit, _: int) -> str:
        first, second = map(_ended, (kit.start(), kit.start()))
        return _complete(kit, kit.project, (first, second), 1)

    with FaultCounts("the same push twice on one machine") as counts:
        at_each(kits, range(1, ROUNDS + 1), counts.each(work))


def test_a_tag_that_someone_else_moves(kits: list[PushKit], project: PublishingProject) -> None:  # noqa: F811
    """To another whole image, before each request in turn: it is told, and the rerun moves it."""
    project.set_up(publishing=PATIENT)
    mine, theirs = MOVING["1.10"][0], MOVING["1.11"][0]

    def work(kit: PushKit, at: int) -> str:
        _publish_others(kit)
        moved = threading.Event()

        def move(asked: Asked) -> None:
            if asked.number == at:
                _move(kit, mine, to=theirs)
                moved.set()

        kit.proxy.before = move
        result = kit.push()
        kit.proxy.before = None
        injected(moved.is_set())
        if result.returncode:
            explained(result, mine, "someone else")
            kit.state.check()
        else:
            kit.check("1.10", "1.11")
        kit.rerun()
        tags = kit.check("1.10", "1.11")
        assert tags[mine] != tags[theirs]
        return "rerun" if result.returncode else "survived"

    with FaultCounts("a moving tag moved by someone else before a request") as counts:
        at_each(kits, _until_the_last_look(kits[0], mine), counts.each(work))


def _until_the_last_look(kit: PushKit, tag: str) -> range:
    """Return the numbers of the requests of a push until it looks at a tag for the last time."""
    kit.reset()
    _publish_others(kit)
    result = kit.push()
    assert result.returncode == 0, said(result)
    looks = [one.number for one in kit.proxy.asked if (one.method, one.manifest) == ("HEAD", tag)]
    return range(1, looks[-1] + 1)


def _publish_others(kit: PushKit) -> None:
    published = kit.push(selection=OTHERS)
    assert published.returncode == 0, said(published)
    kit.quiet()
    kit.proxy.forget()


def _move(kit: PushKit, tag: str, *, to: str) -> None:
    url = f"{kit.registry.url}/v2/{REPOSITORY}/manifests"
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    found = http.get(f"{url}/{to}", headers={"Accept": kind}, timeout=10)
    sent = {"Content-Type": found.headers["Content-Type"]}
    assert http.put(f"{url}/{tag}", data=found.content, headers=sent, timeout=10).ok
