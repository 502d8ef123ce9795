"""`imgbuild push --compression zstd`: what arrives can be pulled, and faults lose nothing.

imgbuild sends the layers itself here, so the faults of test_push_faults.py and
test_push_interrupted.py are put before this path too.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fault_counts import FaultCounts
from faulty_push import completed, given_up, signalled, survived
from own_dockerd import own_dockerd
from push_kit import HASTY, PATIENT, PushKit, at_each, said
from test_push_faults import PASSING, dockerd, project  # noqa: F401  # fixtures
from test_push_faults import kits as gzip_kits  # noqa: F401  # a fixture

if TYPE_CHECKING:
    from publishing_project import PublishingProject

pytestmark = pytest.mark.nightly

ZSTD = {**PATIENT, "compression": "zstd"}
SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGKILL: "`kill -9`"}
_LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"


@pytest.fixture(scope="module")
def kits(
    gzip_kits: list[PushKit],  # noqa: F811
    project: PublishingProject,  # noqa: F811
) -> list[PushKit]:
    """Give the kits with the base image's layer as zstd: its 40 MB need no second packing."""
    project.set_up(publishing=ZSTD)
    return [_with_base(kit) for kit in gzip_kits]


@pytest.fixture
def requests(kits: list[PushKit], project: PublishingProject) -> range:  # noqa: F811
    """Push with nothing in the way; return the numbers of the requests that it takes."""
    project.set_up(publishing=ZSTD)
    kit = kits[0]
    kit.reset()
    result = kit.push()
    assert result.returncode == 0, said(result)
    kit.check("1.10")
    return range(1, len(kit.proxy.asked) + 1)


def _with_base(kit: PushKit) -> PushKit:
    kit.reset()
    result = kit.push()
    assert result.returncode == 0, said(result)
    kit.state.storage.forget_images()
    kept = kit.kept.parent / f"kept-zstd-{kit.registry.port}"
    kit.state.storage.keep(kept)
    return replace(kit, kept=kept)


def test_another_engine_pulls_it(kits: list[PushKit], requests: range) -> None:
    """The image has the id that it has on the engine that made it, and runs."""
    kit = kits[0]
    assert requests
    digest = kit.state.storage.tags()["1.10-cpu"]
    kinds = {layer["mediaType"] for layer in kit.state.storage.document(digest)["layers"]}
    assert kinds == {_LAYER}
    name = f"{kit.proxy.host}/ml/tensorflow:1.10-cpu"
    with own_dockerd() as other:
        assert other.process
        there = replace(kit.project, host=other.host)
        with kit.proxy.listening_in(other.process.pid):
            assert _docker(there, "pull", "--quiet", name).strip() == name
        found = _docker(there, "image", "inspect", "--format={{.Id}}", name)
        assert found.strip() == kit.state.image_id(digest)
        program = _docker(there, "run", "--rm", "--network=none", name, "python")
        assert '["tensorflow", "1.10.0"]' in program


def test_what_is_published_is_not_packed_anew(
    kits: list[PushKit],
    project: PublishingProject,  # noqa: F811
    requests: range,
) -> None:
    """Neither by the same command nor by one that packs otherwise."""
    kit = kits[0]
    assert requests
    before = kit.state.storage.tags()
    kit.proxy.forget()
    for publishing in (ZSTD, PATIENT):
        project.set_up(publishing=publishing)
        result = kit.push()
        assert result.returncode == 0, said(result)
    assert {asked.method for asked in kit.proxy.asked} <= {"GET", "HEAD"}
    assert kit.state.storage.tags() == before


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes(kits: list[PushKit], requests: range, fault: str) -> None:
    def work(kit: PushKit, at: int) -> str:
        return survived(kit, fault, at)

    with FaultCounts(f"{PASSING[fault]}, with zstd") as counts:
        at_each(kits, requests, counts.each(work))


def test_a_registry_that_dies(
    kits: list[PushKit],
    project: PublishingProject,  # noqa: F811
    requests: range,
) -> None:
    project.set_up(publishing={**ZSTD, **HASTY})

    def work(kit: PushKit, at: int) -> str:
        given_up(kit, "die", at)
        _left_nothing(kit)
        return completed(kit, 1)

    with FaultCounts("dead from a request on, with zstd") as counts:
        at_each(kits, requests, counts.each(work))


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal(kits: list[PushKit], requests: range, number: signal.Signals) -> None:
    def work(kit: PushKit, at: int) -> str:
        code = signalled(kit, number, at, requests[-1])
        if number == signal.SIGINT:
            _left_nothing(kit)
        word = completed(kit, code)
        _left_nothing(kit)
        return word

    with FaultCounts(f"{SIGNALS[number]} before a request, with zstd") as counts:
        at_each(kits, requests, counts.each(work))


def _left_nothing(kit: PushKit) -> None:
    """Fail if packed layers lie about."""
    left = [*(kit.project.state / "imgbuild" / "work").glob("*-packing-*")]
    assert left == [], f"{left} were left"


def _docker(project: PublishingProject, *line: str) -> str:  # noqa: F811
    result = project.docker(*line)
    assert result.returncode == 0, result.stderr
    return result.stdout
