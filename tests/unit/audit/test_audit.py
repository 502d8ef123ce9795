"""The whole audit: over a server on server, offline, and as a user calls it."""

import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from fake_wheel import FakeWheel
from faulty_server import FaultyServer, Reply
from typer.testing import CliRunner

from imgbuild.audit.audit import audit_offline, needs_of, write_evidence
from imgbuild.audit.compare import Need
from imgbuild.cli.audit_command import audit
from imgbuild.dockerfile.lockfile import read_lock
from imgbuild.errors import ImgbuildError, InputError
from imgbuild.matrix.evidence import Facts, WheelFacts, read_evidence
from imgbuild.matrix.images import Image
from imgbuild.project import Project

pytest_plugins = ("audit_fixtures",)
PAGE = "/simple/tensorflow-gpu/"


def test_the_committed_evidence_bears_out_the_matrix(
    project: Project, images: dict[str, Image]
) -> None:
    names = {name for image in images.values() for name in image.lock_names}
    locks = {name: read_lock(project.locks / name) for name in names}
    evidence = read_evidence(project.evidence).facts
    assert audit_offline(needs_of(images.values()), locks, evidence).contradictions == ()


def test_evidence_that_is_missing_or_of_another_horovod_is_a_contradiction(
    images: dict[str, Image],
) -> None:
    needs = needs_of([images["tf-2.2-gpu-ubuntu"]])
    outcome = audit_offline(needs, {}, {})
    assert [found.kind for found in outcome.contradictions] == ["evidence", "evidence"]
    assert [one.state for one in outcome.artifacts] == ["missing", "missing"]
    file = f"horovod-{needs[1].version}.tar.gz"
    other = Facts(sha256="cd", file=file, size=9, name="horovod", version=needs[1].version)
    [found] = audit_offline(needs[1:], {}, {"cd": other}).contradictions
    assert found.evidence == f"{file} has sha256 cd"


def test_evidence_is_merged_and_keeps_its_day(
    tmp_path: Path, gpu_need: Need, cpu_facts: WheelFacts, gpu_facts: WheelFacts
) -> None:
    path = tmp_path / "evidence.json"
    assert write_evidence(path, (gpu_facts, cpu_facts), [gpu_need])
    path.write_text(re.sub('"read": "[^"]*"', '"read": "2020-01-01"', path.read_text()))
    assert not write_evidence(path, (gpu_facts, cpu_facts), [gpu_need])
    assert '"read": "2020-01-01"' in path.read_text()
    newer = {"file": "tensorflow_cpu-2.3.0-cp36-cp36m-manylinux2010_x86_64.whl", "sha256": "0"}
    assert write_evidence(path, [cpu_facts.model_copy(update=newer)], [gpu_need])
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
    with pytest.raises(InputError, match="cannot be used as evidence"):
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
    why = "not what `imgbuild audit --write` writes. Restore it from git; or remove it"
    with pytest.raises(InputError, match=f"cannot be used as evidence: {why}"):
        read_evidence(path)
    path.unlink()
    assert read_evidence(path).facts == {}


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


def _audit(folder: Path, url: str, *arguments: str) -> tuple[int, str, str]:
    """Return the exit code, what is printed, and the error."""
    app = typer.Typer(rich_markup_mode=None)
    app.command()(audit)
    words = ["--project", str(folder), "--tf", "2.2", "--gpu", "--stack", "ubuntu", *arguments]
    result = CliRunner().invoke(app, words, env={"UV_DEFAULT_INDEX": f"{url}/simple"})
    error = result.exception
    assert error is None or isinstance(error, ImgbuildError), result.output
    return (error.exit_code if error else 0), result.stdout, str(error or "")


@pytest.fixture
def index(server: FaultyServer, images: dict[str, Image]) -> FaultyServer:
    """Return a server that offers what TensorFlow 2.2's GPU image needs."""
    image = images["tf-2.2-gpu-ubuntu"]
    _offer(server, FakeWheel())
    horovod = f"horovod-{image.version_of('horovod')}.tar.gz"
    assert image.horovod
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
    checkout: Path, index: FaultyServer, images: dict[str, Image]
) -> None:
    code, output, _ = _audit(checkout, index.url, "--write")
    assert (code, "0 contradictions" in output) == (0, True)
    assert "tensorflow-gpu  2.2.0" in output
    assert max(map(len, output.splitlines())) <= 100
    _, output, _ = _audit(checkout, index.url, "--json")
    assert [wheel["state"] for wheel in json.loads(output)["wheels"]] == ["cached"]
    code, _, error = _audit(checkout, index.url, "--offline")
    assert (code, "py3.6.txt: No such file" in error) == (2, True), "it compares the locks"
    evidence = json.loads((checkout / "images" / "evidence.json").read_text())
    (sha256,) = evidence["wheels"]
    for name in images["tf-2.2-gpu-ubuntu"].lock_names:
        lock = checkout / "images" / "locks" / name
        entry = f"tensorflow-gpu==2.2.0 \\\n    --hash=sha256:{sha256}\n"
        lock.write_text(f"# request: sha256:{'0' * 64}\n{entry}")
    code, output, _ = _audit(checkout, index.url, "--offline")
    assert (code, "0 contradictions" in output) == (0, True)


def test_inputs_that_are_away_are_a_failure_where_that_is_asked_for(
    checkout: Path, index: FaultyServer
) -> None:
    assert _audit(checkout, index.url)[0] == 0
    code, _, error = _audit(checkout, index.url, "--strict")
    assert (code, "which --strict forbids: " in error) == (1, True)
    assert "openmpi-3.1.2" in error


def test_a_contradiction_is_placed_and_ends_with_1(checkout: Path, index: FaultyServer) -> None:
    loader = {"CudaRuntime": "10.0", "Cublas": "10.0", "Cudnn": "7"}
    _offer(index, FakeWheel(loader=loader), 'data-yanked="no good"')
    code, output, error = _audit(checkout, index.url)
    assert (code, "2 contradictions between pins and artifacts" in error) == (1, True)
    assert "(yanked)" in output
    assert "✗ matrix.yaml:" in output
    assert "cuda 10.1 breaks the rule tensorflow-cuda, which requires 10.0" in " ".join(
        output.split()
    )


def test_a_wheel_that_is_gone_and_pythons_that_are_offered(
    checkout: Path, index: FaultyServer
) -> None:
    index.replies[PAGE] = index.replies["/simple/horovod/"]
    assert "(missing)" in _audit(checkout, index.url)[1]
    _offer(index, FakeWheel())
    (page,) = index.replies[PAGE]
    index.give(PAGE, replace(page, body=page.body.replace(b"cp38-cp38", b"cp39-cp39")))
    assert _audit(checkout, index.url, "--write")[0] == 0
    evidence = read_evidence(checkout / "images" / "evidence.json")
    assert evidence.pythons("tensorflow-gpu", "2.2.0") == ("cp36", "cp37", "cp39")


def test_what_cannot_be_read_ends_with_3(checkout: Path, index: FaultyServer) -> None:
    index.give(f"/{FakeWheel().file}", Reply(b"<html>", ranges=False))
    code, output, error = _audit(checkout, index.url)
    assert (code, "ignores ranges" in error, "unread" in output) == (3, True, True)
    code, _, error = _audit(checkout, "http://127.0.0.1:9")
    assert (code, "The Python package index cannot be read" in error) == (3, True)
    assert "--offline" in error


def test_a_download_of_horovod_that_differs(checkout: Path, index: FaultyServer) -> None:
    code, output, _ = _audit(checkout, index.url, "--download")
    assert (code, "(sha256)" in output) == (1, True)


def test_offline_nothing_is_written(checkout: Path, index: FaultyServer) -> None:
    assert _audit(checkout, index.url, "--offline", "--write")[0] == 2
