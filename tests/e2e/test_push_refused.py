"""A registry that takes nothing: a wrong or expired login, a full disk, a tag that is taken."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from fault_counts import FaultCounts, injected
from network_namespace import forwarded
from own_registry import own_registry
from published_state import PublishedState
from publishing_project import IMMUTABLE, REPOSITORY
from push_kit import HASTY, PATIENT, PushKits, at_each, explained, of_another_machine, said
from registry_storage import RegistryStorage
from test_push_faults import dockerd, kits, project, requests  # noqa: F401  # fixtures

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from own_dockerd import OwnDockerd
    from publishing_project import PublishingProject
    from push_kit import PushKit
    from registry_proxy import Asked

pytestmark = pytest.mark.nightly

USER, PASSWORD, NEXT, WRONG = "robot", "first-5ecret", "next-5ecret", "wr0ng-5ecret"
KITS = 4
DISK = 200 << 20
RELEASE = "20260101.1"


@pytest.fixture(scope="module")
def guarded(
    dockerd: OwnDockerd,  # noqa: F811
    project: PublishingProject,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[PushKit]]:
    """Give kits with a registry that wants a password."""
    folder = tmp_path_factory.mktemp("guarded")
    with PushKits(project, dockerd, folder, login=(USER, PASSWORD)).made(KITS) as made:
        yield made


def _log_in(kit: PushKit, password: str) -> None:
    kit.project.log_in(kit.proxy.host, USER, password)


def _told_to_log_in(kit: PushKit, result: subprocess.CompletedProcess[str]) -> None:
    """Fail unless it says what to do, and no password in its words or logs."""
    explained(result, kit.proxy.host, "docker login")
    assert result.returncode == 1
    logs = (kit.project.state / "imgbuild").rglob("*.log")
    shown = [result.stdout, result.stderr, *(log.read_text(errors="replace") for log in logs)]
    for password in (PASSWORD, NEXT, WRONG):
        assert not [text for text in shown if password in text]


@pytest.mark.parametrize("password", ["", WRONG])
def test_no_login_or_a_wrong_one(guarded: list[PushKit], password: str) -> None:
    kit = guarded[0]
    kit.registry.set_login(USER, PASSWORD)
    kit.reset()
    if password:
        _log_in(kit, password)
    else:
        (kit.project.docker_config / "config.json").unlink()

    def refused() -> str:
        result = kit.push()
        _told_to_log_in(kit, result)
        assert kit.state.storage.tags() == {}
        _log_in(kit, PASSWORD)
        return _completed(kit, result)

    with FaultCounts("a wrong login" if password else "no login") as counts:
        counts.of(refused)


def test_a_login_that_expires(
    guarded: list[PushKit],
    project: PublishingProject,  # noqa: F811
) -> None:
    """Before each request in turn: it is told, and the push after a new login completes it."""
    project.set_up(publishing=PATIENT)
    first = guarded[0]
    first.registry.set_login(USER, PASSWORD)
    first.reset()
    _log_in(first, PASSWORD)
    assert first.push().returncode == 0
    moments = range(1, len(first.proxy.asked) + 1)

    def work(kit: PushKit, at: int) -> str:
        kit.registry.set_login(USER, PASSWORD)
        _log_in(kit, PASSWORD)
        expired = threading.Event()

        def expire(asked: Asked) -> None:
            if asked.number == at:
                kit.registry.set_login(USER, NEXT)
                expired.set()

        kit.proxy.before = expire
        result = kit.push()
        kit.proxy.before = None
        injected(expired.is_set())
        _told_to_log_in(kit, result)
        kit.quiet()
        # Of two versions that it reads at the same time docker-registry may keep the older one.
        kit.registry.set_login(USER, NEXT)
        _log_in(kit, NEXT)
        return _completed(kit, result)

    with FaultCounts("a login that expires before a request") as counts:
        at_each(guarded, moments, counts.each(work))


def test_a_full_disk(
    dockerd: OwnDockerd,  # noqa: F811
    project: PublishingProject,  # noqa: F811
    requests: range,  # noqa: F811
    tmp_path: Path,
) -> None:
    """The registry's, from a request on; then there is room again."""
    project.set_up(publishing=HASTY)
    counts = FaultCounts("a full disk of the registry from a request on")
    mended = FaultCounts("a full disk that left empty files in the registry, which were removed")

    def work(kit: PushKit, at: int) -> None:
        filled = threading.Event()

        def fill(asked: Asked) -> None:
            if asked.number == at and kit.disk:
                kit.disk.fill()
                filled.set()

        kit.proxy.before = fill
        result = kit.push()
        kit.proxy.before = None
        injected(filled.is_set())
        assert kit.disk
        kit.disk.empty()
        damaged = kit.state.storage.mend()
        (mended if damaged else counts).of(lambda: _completed(kit, result))

    with counts, mended, PushKits(project, dockerd, tmp_path, disk=DISK).made(KITS) as full:
        at_each(full, requests, work)


def test_an_immutable_tag_that_is_taken(kits: list[PushKit]) -> None:  # noqa: F811
    """By another image: it stays, and the message shows both."""
    kit = kits[0]
    kit.reset()
    name = f"{kit.proxy.host}/{REPOSITORY}:{IMMUTABLE['1.10']}-{RELEASE}"
    base = kit.project.docker("images", "--quiet", "imgbuild/base").stdout.split()[0]
    for line in (("tag", base, name), ("push", name), ("rmi", name)):
        assert kit.project.docker(*line).returncode == 0
    before = kit.state.storage.tags()
    result = kit.push("--release", RELEASE)
    explained(result, name, *before.values())
    assert result.returncode == 1
    assert kit.state.storage.tags() == before


@pytest.mark.parametrize("login", [None, (USER, PASSWORD)])
def test_tls(
    dockerd: OwnDockerd,  # noqa: F811
    project: PublishingProject,  # noqa: F811
    tmp_path: Path,
    login: tuple[str, str] | None,
) -> None:
    """With the CA of the registry among the settings; without it nothing is sent."""
    own = of_another_machine(project, tmp_path / "own")
    with own_registry(tmp_path / "registry", tls=True, login=login) as registry:
        assert dockerd.process
        if login:
            own.log_in(registry.host, *login)
        with forwarded(registry.port, dockerd.process.pid):
            refused = own.push(registry.host)
            explained(refused, registry.host, "certificate")
            own.set_up(ca_bundle=str(registry.ca))
            try:
                pushed = own.push(registry.host)
                again = own.push(registry.host)
            finally:
                own.set_up(ca_bundle=None)
        assert (pushed.returncode, again.returncode) == (0, 0), said(pushed) + said(again)
        state = PublishedState(RegistryStorage(registry.storage, REPOSITORY), own.green)
        state.check()
        assert len(state.storage.tags()) == 5


def _completed(kit: PushKit, result: subprocess.CompletedProcess[str]) -> str:
    """Push again, and fail unless all is there; return what this was, for the counts.

    All must be there before that if the push said so.
    """
    if result.returncode:
        explained(result, kit.proxy.host)
        kit.state.check()
    else:
        kit.check("1.10")
    kit.rerun()
    kit.check("1.10")
    return "rerun" if result.returncode else "survived"
