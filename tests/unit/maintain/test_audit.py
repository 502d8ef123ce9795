"""The whole audit: over a server on server, offline, and as a user calls it."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.locks.lockfile import read_lock
from imgbuild.maintain.audit import AuditResult, audit_offline, list_artifacts, write_evidence
from imgbuild.maintain.compare import Artifact
from imgbuild.maintain.reachability import AWAY, OtherInput
from imgbuild.matrix.evidence import Facts, WheelFacts, read_evidence
from imgbuild.matrix.images import Image, with_other_architectures
from support.fake_wheel import FakeWheel
from support.faulty_server import FaultyServer, Reply
from support.offered_wheel import offer, run_command

pytest_plugins = ("support.audit_fixtures",)
PAGE = "/simple/tensorflow-gpu/"
IMAGE = ("--tf", "2.2", "--gpu", "--stack", "ubuntu")


def test_the_committed_evidence_bears_out_the_matrix(
    project: Project, images: dict[str, Image]
) -> None:
    names = {name for image in images.values() for name in image.lock_names}
    locks = {name: read_lock(project.locks / name) for name in names}
    evidence = read_evidence(project.evidence).facts
    assert audit_offline(list_artifacts(images.values()), locks, evidence).contradictions == ()


def test_an_image_for_arm64_is_held_to_its_own_wheel_and_lock(
    project: Project, images: dict[str, Image]
) -> None:
    both = with_other_architectures([images["tf-2.18-cpu-debian"]])
    locks = {name: read_lock(project.locks / name) for image in both for name in image.lock_names}
    evidence = read_evidence(project.evidence).facts
    artifacts = list_artifacts(both)
    wheels = [artifact for artifact in artifacts if artifact.python_tag]
    assert [(one.distribution, one.architecture) for one in wheels] == [
        ("tensorflow-cpu", "amd64"),
        ("tensorflow", "arm64"),
    ]
    assert audit_offline(artifacts, locks, evidence).contradictions == ()
    with_cuda = {
        digest: facts.model_copy(update={"cuda_build": True}) if "aarch64" in facts.file else facts
        for digest, facts in evidence.items()
    }
    [found] = audit_offline(artifacts, locks, with_cuda).contradictions
    assert (found.kind, found.subject) == ("cpu", "tensorflow 2.18.1 for arm64")
    assert found.place == ("tensorflow", "2.18.1", "distribution", "arm64")
    for_amd64 = {digest: facts for digest, facts in evidence.items() if "aarch64" not in facts.file}
    [found] = audit_offline(artifacts, locks, for_amd64).contradictions
    assert found.kind == "evidence"
    assert "aarch64" in found.evidence


def test_evidence_that_is_missing_or_of_another_horovod_is_a_contradiction(
    images: dict[str, Image],
) -> None:
    artifacts = list_artifacts([images["tf-2.2-gpu-ubuntu"]])
    outcome = audit_offline(artifacts, {}, {})
    assert [found.kind for found in outcome.contradictions] == ["evidence", "evidence"]
    assert [one.state for one in outcome.artifacts] == ["missing", "missing"]
    file = f"horovod-{artifacts[1].version}.tar.gz"
    other = Facts(sha256="cd", file=file, size=9, name="horovod", version=artifacts[1].version)
    [found] = audit_offline(artifacts[1:], {}, {"cd": other}).contradictions
    assert found.evidence == f"{file} has sha256 cd"


def test_evidence_is_merged_and_keeps_its_day(
    tmp_path: Path, gpu_artifact: Artifact, cpu_facts: WheelFacts, gpu_facts: WheelFacts
) -> None:
    path = tmp_path / "evidence.json"
    assert write_evidence(path, (gpu_facts, cpu_facts), [gpu_artifact])
    path.write_text(re.sub('"read": "[^"]*"', '"read": "2020-01-01"', path.read_text()))
    assert not write_evidence(path, (gpu_facts, cpu_facts), [gpu_artifact])
    assert '"read": "2020-01-01"' in path.read_text()
    newer = {"file": "tensorflow_cpu-2.3.0-cp36-cp36m-manylinux2010_x86_64.whl", "sha256": "0"}
    assert write_evidence(path, [cpu_facts.model_copy(update=newer)], [gpu_artifact])
    assert read_evidence(path).facts.keys() == {gpu_facts.sha256, "0"}
    assert '"read": "2020-01-01"' not in path.read_text()


WRONG_FACTS = '{"schema": 2, "wheels": {"0": {"x": 1}}, "sdists": {}}'


@pytest.mark.parametrize("field", ["glibc", "cuda", "capabilities", "compiler"])
@pytest.mark.parametrize("value", ["~~", "9" * 5000, "1.x"], ids=["tilde", "long", "letter"])
def test_evidence_with_a_version_that_is_none(
    tmp_path: Path, gpu_facts: WheelFacts, field: str, value: str
) -> None:
    path = tmp_path / "evidence.json"
    wrong = (value,) if field == "capabilities" else value
    write_evidence(path, [gpu_facts.model_copy(update={field: wrong})], [])
    with pytest.raises(InputError, match="Cannot read the evidence"):
        read_evidence(path)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"schema": 0}', '{"schema": 2, "read": "x"}', WRONG_FACTS, "[" * 100_000],
    ids=["open", "list", "empty", "schema", "day", "facts", "deep"],
)
@pytest.mark.usefixtures("no_collection")
def test_evidence_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "evidence.json"
    path.write_text(text)
    with pytest.raises(InputError, match="Cannot read the evidence"):
        read_evidence(path)


@pytest.fixture
def checkout(tmp_path: Path, project: Project) -> Path:
    """Return a checkout of one GPU image, whose inputs answer nowhere and whose locks are away."""
    (tmp_path / "images" / "locks").mkdir(parents=True)
    (tmp_path / "images" / "files").symlink_to(project.files)
    shutil.copy(project.matrix, tmp_path / "matrix.yaml")
    upstreams = ("ubuntu", "open-mpi", "anaconda", "python-org", "conda-forge")
    nowhere = dict.fromkeys((*upstreams, "nvidia-cuda"), "http://127.0.0.1:9/")
    settings = {"mirrors": nowhere, "registry": "127.0.0.1:9"}
    (tmp_path / "imgbuild.local.yaml").write_text(json.dumps(settings))
    return tmp_path


@pytest.fixture
def wheel(index: FaultyServer) -> FaultyServer:
    """Return an index with the wheel of TensorFlow 2.2's GPU image."""
    offer(index, FakeWheel())
    return index


def _audit(folder: Path, index: FaultyServer, *arguments: str) -> tuple[int, str, str]:
    return run_command(index, "audit", "--project", str(folder), *IMAGE, *arguments)


def test_inputs_that_were_reached_are_not_away() -> None:
    reached = OtherInput("a", "https://host.invalid/a", None, (), state="reachable")
    inputs = [reached, replace(reached, name="b", state=AWAY)]
    assert AuditResult([], [], {}, inputs).away == ["b"]


def test_an_audit_without_contradiction_is_written_and_not_read_again(
    checkout: Path, wheel: FaultyServer, images: dict[str, Image]
) -> None:
    code, output, _ = _audit(checkout, wheel, "--write")
    away = output.count("not reachable from here")
    assert away > 1
    assert (code, f"0 contradictions; {away} inputs could not be reached" in output) == (0, True)
    code, _, error = _audit(checkout, wheel, "--strict")
    assert (code, "openmpi-3.1.2" in error) == (1, True)
    _, output, _ = _audit(checkout, wheel, "--json")
    assert [found["state"] for found in json.loads(output)["wheels"]] == ["cached"]
    code, _, error = _audit(checkout, wheel, "--offline")
    assert (code, "py3.6.txt: No such file" in error) == (2, True), "it compares the locks"
    (sha256,) = json.loads((checkout / "images" / "evidence.json").read_text())["wheels"]
    entry = f"tensorflow-gpu==2.2.0 \\\n    --hash=sha256:{sha256}\n"
    for name in images["tf-2.2-gpu-ubuntu"].lock_names:
        lock = checkout / "images" / "locks" / name
        lock.write_text(f"# request: sha256:{'0' * 64}\n{entry}")
    code, output, _ = _audit(checkout, wheel, "--offline")
    assert (code, "0 contradictions" in output) == (0, True)
    assert _audit(checkout, wheel, "--offline", "--write")[0] == 2


def test_a_contradiction_is_placed_and_ends_with_1(checkout: Path, index: FaultyServer) -> None:
    loader = {"CudaRuntime": "10.0", "Cublas": "10.0", "Cudnn": "7"}
    offer(index, FakeWheel(loader=loader), 'data-yanked="no good"')
    code, output, error = _audit(checkout, index, "--download")
    assert (code, "3 contradictions between pins and artifacts" in error) == (1, True)
    assert "cuda 10.1 breaks the rule tensorflow-cuda, which requires 10.0" in " ".join(
        output.split()
    )
    places = re.findall(r"✗ matrix\.yaml:\d+:\d+ (\w+)\.(?:\S+\.)?(\w+) \((\w+)\)", output)
    assert {(first, kind) for first, _, kind in places} == {
        ("images", "yanked"),
        ("images", "rule"),
        ("horovod", "sha256"),
    }


def test_a_wheel_that_is_gone_and_pythons_that_are_offered(
    checkout: Path, wheel: FaultyServer
) -> None:
    (page,) = wheel.replies[PAGE]
    wheel.replies[PAGE] = wheel.replies["/simple/horovod/"]
    assert "(missing)" in _audit(checkout, wheel)[1]
    wheel.give(PAGE, replace(page, body=page.body.replace(b"cp38-cp38", b"cp39-cp39")))
    assert _audit(checkout, wheel, "--write")[0] == 0
    evidence = read_evidence(checkout / "images" / "evidence.json")
    assert evidence.pythons("tensorflow-gpu", "2.2.0") == ("cp36", "cp37", "cp39")


def test_what_cannot_be_read_ends_with_3(checkout: Path, wheel: FaultyServer) -> None:
    wheel.give(f"/{FakeWheel().file}", Reply(b"<html>", ranges=False))
    code, output, error = _audit(checkout, wheel)
    assert (code, "ignores ranges" in error, "unread" in output) == (3, True, True)
    wheel.give(PAGE, Reply(b"", 500))
    code, _, error = _audit(checkout, wheel)
    assert (code, "The Python package index cannot be read" in error) == (3, True)
