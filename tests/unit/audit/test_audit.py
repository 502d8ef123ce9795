"""The whole audit: over a server on server, offline, and as a user calls it."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_wheel import FakeWheel
from faulty_server import FaultyServer, Reply

from imgbuild.audit.audit import audit_offline
from imgbuild.audit.facts import (
    Evidence,
    Facts,
    Pins,
    SdistFacts,
    SdistNeed,
    WheelFacts,
    WheelNeed,
    load_evidence,
    pins_of,
    write_evidence,
)
from imgbuild.errors import InputError
from imgbuild.matrix.images import Image
from imgbuild.project import Project

pytest_plugins = ("audit_fixtures",)
SHA = "ab" * 32
PAGE = "/simple/tensorflow-gpu/"


def test_the_committed_evidence_bears_out_the_matrix(
    project: Project, images: dict[str, Image]
) -> None:
    evidence = load_evidence(project.root / "images" / "evidence.json")
    outcome = audit_offline(pins_of(images.values(), project.locks), evidence)
    assert outcome.contradictions == ()


def test_evidence_that_is_missing_or_of_another_horovod_is_a_contradiction(
    gpu_need: WheelNeed,
) -> None:
    pins = Pins((gpu_need,), (SdistNeed("0.19.5", SHA),), {})
    outcome = audit_offline(pins, Evidence("2026-11-21"))
    assert [found.kind for found in outcome.contradictions] == ["evidence", "evidence"]
    assert outcome.wheels[0].state == "missing"
    other = SdistFacts("cd" * 32, "horovod-0.19.5.tar.gz", 9, "horovod", "0.19.5")
    pins = Pins((), (SdistNeed("0.19.5", SHA),), {})
    outcome = audit_offline(pins, Evidence("2026-11-21", (other,)))
    assert "cdcdcd" in outcome.contradictions[0].evidence


def test_evidence_is_merged_and_keeps_its_date(
    tmp_path: Path, gpu_need: WheelNeed, cpu_facts: WheelFacts, gpu_facts: WheelFacts
) -> None:
    path = tmp_path / "evidence.json"

    def fits(facts: Facts) -> bool:
        return gpu_need.fits(facts.file)

    assert write_evidence(path, Evidence("2026-11-21", (gpu_facts, cpu_facts)), fits)
    assert not write_evidence(path, Evidence("2026-11-22", (gpu_facts, cpu_facts)), fits)
    assert load_evidence(path).date == "2026-11-21"
    newer = replace(cpu_facts, file="tensorflow_cpu-2.3.0-cp36-cp36m-manylinux2010_x86_64.whl")
    assert write_evidence(path, Evidence("2026-11-22", (replace(newer, sha256="0"),)), fits)
    kept = load_evidence(path)
    assert kept.date == "2026-11-22"
    assert {facts.sha256 for facts in kept.artifacts} == {gpu_facts.sha256, "0"}


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 0}', '{"schema": 1, "read": "x"}'])
def test_evidence_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "evidence.json").write_text(text)
    with pytest.raises(InputError, match="cannot be used as evidence"):
        load_evidence(tmp_path / "evidence.json")
    with pytest.raises(InputError, match="is missing"):
        load_evidence(tmp_path / "absent.json")


@pytest.fixture
def checkout(tmp_path: Path, project: Project) -> Path:
    """Return a checkout of one GPU image, whose inputs answer nowhere and whose locks are away."""
    (tmp_path / "images" / "locks").mkdir(parents=True)
    shutil.copy(project.matrix, tmp_path / "matrix.yaml")
    return tmp_path


def _audit(folder: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from imgbuild.cli import main; main()", "audit"]
    environment = {
        **os.environ,
        "UV_DEFAULT_INDEX": f"{url}/simple",
        "NO_PROXY": "127.0.0.1",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    selection = ("--tf", "2.2", "--gpu", "--stack", "ubuntu")
    return subprocess.run(
        [*command, *selection, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def index(server: FaultyServer, images: dict[str, Image]) -> FaultyServer:
    """Return a server that offers what TensorFlow 2.2's GPU image needs."""
    image = images["tf-2.2-gpu-ubuntu"]
    _offer(server, FakeWheel())
    horovod = f"horovod-{image.version_of('horovod')}.tar.gz"
    server.project("horovod", f'href="/{horovod}#sha256={image.horovod.sha256}">{horovod}')
    server.give(f"/{horovod}", Reply(b"content"))
    return server


def _offer(server: FaultyServer, wheel: FakeWheel, attribute: str = "") -> None:
    content = wheel.content()
    sha256 = hashlib.sha256(content).hexdigest()
    links = []
    for tag in ("cp36-cp36m", "cp37-cp37m", "cp38-cp38"):
        name = wheel.file.replace("cp36-cp36m", tag)
        server.give(f"/{name}", Reply(content))
        links.append(f'href="/{name}#sha256={sha256}" {attribute}>{name}')
    server.project("tensorflow-gpu", *links)


def test_an_audit_without_contradiction_is_written_and_not_read_again(
    checkout: Path, index: FaultyServer
) -> None:
    first = _audit(checkout, index.url, "--write")
    assert (first.returncode, "0 contradictions" in first.stdout) == (0, True), first.stderr
    assert "tensorflow-gpu  2.2.0" in first.stdout
    assert max(map(len, first.stdout.splitlines())) <= 100
    again = json.loads(_audit(checkout, index.url, "--json").stdout)
    assert [wheel["state"] for wheel in again["wheels"]] == ["cached"]
    offline = _audit(checkout, index.url, "--offline")
    assert (offline.returncode, offline.stderr) == (0, "")


def test_inputs_that_are_away_are_a_failure_where_that_is_asked_for(
    checkout: Path, index: FaultyServer
) -> None:
    (checkout / "imgbuild.local.yaml").write_text(
        "mirrors: " + json.dumps(dict.fromkeys(("open-mpi", "anaconda"), "http://127.0.0.1:9/"))
    )
    assert _audit(checkout, index.url).returncode == 0
    result = _audit(checkout, index.url, "--strict")
    assert result.returncode == 1
    assert "which --strict forbids: " in result.stderr
    assert "openmpi-3.1.2" in result.stderr


def test_a_contradiction_is_placed_and_ends_with_1(checkout: Path, index: FaultyServer) -> None:
    loader = {"CudaRuntime": "10.0", "Cublas": "10.0", "Cudnn": "7"}
    _offer(index, FakeWheel(loader=loader), 'data-yanked="no good"')
    result = _audit(checkout, index.url)
    assert result.returncode == 1
    assert "3 contradictions between pins and artifacts" in result.stderr
    assert "(yanked)" in result.stdout
    assert "✗ matrix.yaml:" in result.stdout
    assert "libcudart.so.10.0" in result.stdout


def test_a_wheel_that_is_gone_and_pythons_that_differ(checkout: Path, index: FaultyServer) -> None:
    index.replies[PAGE] = index.replies["/simple/horovod/"]
    assert "(missing)" in _audit(checkout, index.url).stdout
    _offer(index, FakeWheel())
    (page,) = index.replies[PAGE]
    index.give(PAGE, replace(page, body=page.body.replace(b"cp38-cp38", b"cp39-cp39")))
    assert "(pythons)" in _audit(checkout, index.url).stdout


def test_what_cannot_be_read_ends_with_3(checkout: Path, index: FaultyServer) -> None:
    name = FakeWheel().file
    index.give(f"/{name}", Reply(b"<html>", ranges=False))
    result = _audit(checkout, index.url)
    assert (result.returncode, "ignores ranges" in result.stderr) == (3, True)
    assert "unread" in result.stdout
    result = _audit(checkout, "http://127.0.0.1:9")
    assert result.returncode == 3
    assert "index (UV_DEFAULT_INDEX) cannot be reached" in result.stderr
    assert "--offline" in result.stderr


def test_a_download_of_horovod_that_differs(checkout: Path, index: FaultyServer) -> None:
    result = _audit(checkout, index.url, "--download")
    assert (result.returncode, "(sha256)" in result.stdout) == (1, True)
    assert _audit(checkout, index.url, "--offline", "--write").returncode == 2
