"""A registry that fails at any one request of `imgbuild push`, for a moment or for good.

Whatever happens at whichever request: a rerun completes, the registry then holds the planned tags
and no others, and at no moment did a tag stand for what was not whole, not tested or not recorded.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest
from fault_counts import FaultCounts, injected
from faulty_push import given_up, survived
from own_dockerd import OwnDockerd, own_dockerd
from publishing_project import TWO, PublishingProject, publishing_project
from push_kit import HASTY, PATIENT, PushKit, PushKits, at_each, explained, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from registry_proxy import Asked

pytestmark = pytest.mark.nightly

KITS = 6
PASSING = {
    "500": "one answer 500",
    "429": "one answer 429",
    "reset": "one connection reset before the registry sees the request",
    "cut": "one connection reset in mid-request or mid-answer",
    "lost": "one connection reset when the registry has done it",
}
LASTING = {"500": "only answers 500 from a request on", "die": "dead from a request on"}


@pytest.fixture(scope="module")
def dockerd() -> Iterator[OwnDockerd]:
    with own_dockerd("--max-concurrent-uploads=50") as engine:
        yield engine


@pytest.fixture(scope="module")
def project(dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory) -> PublishingProject:
    made = publishing_project(tmp_path_factory.mktemp("pushing"), dockerd.host)
    made.build(*TWO)
    return made


@pytest.fixture(scope="module")
def kits(
    dockerd: OwnDockerd, project: PublishingProject, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[PushKit]]:
    with PushKits(project, dockerd, tmp_path_factory.mktemp("kits")).made(KITS) as made:
        yield made


@pytest.fixture
def requests(kits: list[PushKit], project: PublishingProject) -> range:
    """Push with nothing in the way; return the numbers of the requests that it takes."""
    project.set_up(publishing=PATIENT)
    kit = kits[0]
    kit.reset()
    result = kit.push()
    assert result.returncode == 0, said(result)
    kit.check("1.10")
    return range(1, len(kit.proxy.asked) + 1)


def test_a_second_push_asks_and_writes_nothing(kits: list[PushKit], requests: range) -> None:
    kit = kits[0]
    before = kit.state.storage.tags()
    kit.proxy.forget()
    result = kit.push()
    assert result.returncode == 0, said(result)
    assert {asked.method for asked in kit.proxy.asked} <= {"GET", "HEAD"}
    assert len(kit.proxy.asked) < len(requests)
    assert kit.state.storage.tags() == before


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes(kits: list[PushKit], requests: range, fault: str) -> None:
    """One request goes wrong, each in its turn; nobody has to do anything."""

    def work(kit: PushKit, at: int) -> str:
        return survived(kit, fault, at)

    with FaultCounts(PASSING[fault]) as counts:
        at_each(kits, requests, counts.each(work))


@pytest.mark.parametrize("fault", LASTING)
def test_a_fault_that_stays(
    kits: list[PushKit], project: PublishingProject, requests: range, fault: str
) -> None:
    """From one request on, each in its turn, nothing works; then all is well again."""
    project.set_up(publishing=HASTY)

    def work(kit: PushKit, at: int) -> str:
        given_up(kit, fault, at)
        return _rerun(kit)

    with FaultCounts(LASTING[fault]) as counts:
        at_each(kits, requests, counts.each(work))


def test_a_registry_that_is_killed_and_comes_back(kits: list[PushKit], requests: range) -> None:
    """The process itself, with whatever it was writing; it is back a second later."""

    def work(kit: PushKit, at: int) -> str:
        back = threading.Timer(1, kit.registry.start)

        def kill(asked: Asked) -> None:
            if asked.number == at:
                kit.registry.stop(signal.SIGKILL)
                back.start()

        kit.proxy.before = kill
        result = kit.push()
        kit.proxy.before = None
        injected(back.ident)
        back.join()
        if result.returncode:
            explained(result, kit.proxy.host)
            return _rerun(kit)
        kit.check("1.10")
        return "survived"

    with FaultCounts("the registry's process killed, and back after a second") as counts:
        at_each(kits, requests, counts.each(work))


def _rerun(kit: PushKit) -> str:
    """Push again, and fail unless all is there then."""
    kit.state.check()
    kit.rerun()
    kit.check("1.10")
    return "rerun"
