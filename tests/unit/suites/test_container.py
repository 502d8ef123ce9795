"""Containers of images under test: with GPUs or the reason why not, and what is read in them."""

import io
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.engine.types import LabelledObject, StoredImage
from imgbuild.matrix.images import Image
from imgbuild.suites import container as container_module
from imgbuild.suites.container import (
    CONTAINER_LABEL,
    SHARED_MEMORY,
    ImageContents,
    StartedContainer,
    TestTarget,
    docker_exec,
    make_label,
    read_contents,
    remove_leftovers,
    suite_container,
)
from support.fake_engine import FakeContainer, FakeEngine, OfferingEngine

OLD_CPU, OLD_GPU, NEW_GPU = "tf-1.12-cpu-ubuntu", "tf-1.12-gpu-ubuntu", "tf-1.14-gpu-ubuntu"
STUB = b"\x7fELF stub"
GPUS: dict[str, object] = {"gpus": "nvidia", "shm_bytes": SHARED_MEMORY}
PLAIN: dict[str, object] = {}
NONE, REFUSED = (
    "the engine offers none to containers",
    "could not select device driver with capabilities: [[gpu]]",
)


class Refusing(OfferingEngine):
    """An engine that offers GPUs and then does not give them."""

    def start(self, image: str, **options: object) -> str:
        if options.get("gpus"):
            raise MachineError("could not select device driver\nwith capabilities: [[gpu]]")
        return super().start(image, **options)  # type: ignore[arg-type]


def _engine(kind: type[FakeEngine] = FakeEngine) -> FakeEngine:
    return kind([StoredImage("sha256:id")])


def _target(image: Image) -> TestTarget:
    def export(folder: Path) -> None:
        (folder / "libcuda.so.1").write_bytes(STUB)

    expected = {"tensorflow": image.tensorflow}
    return TestTarget(image.name, "sha256:id", "name", image.variant, expected, export_stub=export)


def _run(
    target: TestTarget, engine: FakeEngine
) -> tuple[StartedContainer, FakeContainer, list[str]]:
    """Return what was started, the container while it ran, and what was said."""
    said: list[str] = []
    with suite_container(target, engine, said.append) as started:
        found = engine.running[started.id]
        seen = (started, replace(found, copied=[*found.copied]), said)
    assert engine.running == {}
    return seen


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        (OLD_CPU, OfferingEngine, (None, False, PLAIN, 0)),
        (OLD_GPU, OfferingEngine, (None, True, GPUS, 0)),
        (OLD_GPU, FakeEngine, (NONE, False, PLAIN, 1)),
        (OLD_GPU, Refusing, (REFUSED, True, PLAIN, 1)),
        (NEW_GPU, FakeEngine, (NONE, False, PLAIN, 0)),  # it needs no driver to be imported
    ],
)
def test_an_image_gets_gpus_or_the_reason_why_not_and_perhaps_a_stub(
    images: dict[str, Image],
    name: str,
    kind: type[FakeEngine],
    expected: tuple[str | None, bool, dict[str, object], int],
) -> None:
    started, container, said = _run(_target(images[name]), _engine(kind))
    found = (started.no_gpu, started.offered, container.options, len(container.copied))
    assert found == expected
    assert said == []
    for path, archive in container.copied:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            member = tar.extractfile("usr/local/nvidia/lib64/libcuda.so.1")
            assert member is not None
            assert (path, len(tar.getnames()), member.read()) == ("/", 1, STUB)


@pytest.mark.parametrize("fault", [CheckFailedError("the stage fails"), OSError(28, "No space")])
def test_a_stub_that_cannot_be_made_is_reported(images: dict[str, Image], fault: Exception) -> None:
    def fails(_: Path) -> None:
        raise fault

    target = _target(images[OLD_GPU])
    (said,) = _run(replace(target, export_stub=fails), _engine())[2]
    assert str(fault) in said
    unknown = TestTarget("x", "sha256:id", "x", "gpu", target.expected)
    assert len(_run(unknown, _engine())[2]) == 1


def test_all_that_suites_start_goes_and_what_others_started_stays(
    images: dict[str, Image], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Others are other images, another machine, another state folder, and older releases."""
    engine = _engine()
    mine = make_label(OLD_CPU)
    others = [make_label("other"), f"{OLD_CPU}@another machine", OLD_CPU]
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path))
        others.append(make_label(OLD_CPU))
        elsewhere.setattr("os.uname", lambda: SimpleNamespace(nodename="elsewhere"))
        others.append(make_label(OLD_CPU))
    assert len({mine, *others}) == 6
    with suite_container(_target(images[OLD_CPU]), engine, print):
        for value in (mine, *others):
            labels = {CONTAINER_LABEL: value}
            engine.start("sha256:id", command=["sshd"], labels=labels)
            engine.nets[value] = LabelledObject(value, labels)
    assert [one.labels[CONTAINER_LABEL] for one in engine.running.values()] == others
    assert [*engine.nets] == others
    remove_leftovers(["other"], engine)
    assert [*engine.nets] == others[1:]


def test_commands_run_by_the_docker_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = tmp_path / "docker"

    def run(script: str) -> str:
        client.write_text(f"#!/bin/sh\n{script}\n")
        client.chmod(0o755)
        return docker_exec("unix:///there", "c1", ["python", "-c", "x"])

    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert run('echo "$DOCKER_HOST" "$@"') == "unix:///there exec c1 python -c x\n"
    with pytest.raises(CheckFailedError, match=r"\(exit code 127\): no such program: python"):
        run("echo some words; echo no such program: python >&2; exit 127")
    monkeypatch.setattr(container_module, "PROGRAM_SECONDS", 0.2)
    with pytest.raises(CheckFailedError, match=r"took more than 0\.2 s"):
        run("exec sleep 30")


ANSWER: dict[str, object] = {
    "distributions": [["tensorflow", "2.2.3"]],
    "packages": {"numpy": "1.18.5", "zope.interface": "5.4.0"},
    "glibc": "2.36",
    "built_with_cuda": False,
    "kernels": None,
    "python": "3.6.15",
    "mpirun": "mpirun (Open MPI) 4.1.4",
    "cuda": ["10.1.243"],
    "os": ["debian", "12"],
}


def _answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> ImageContents:
    """Return the contents of an image that gives this answer."""
    client, printed = tmp_path / "docker", tmp_path / "printed"
    client.write_text(f"#!/bin/sh\ncat {printed}\n")
    client.chmod(0o755)
    printed.write_text(json.dumps({**ANSWER, **changes}))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    engine = _engine()
    try:
        return read_contents("me/own:1", "sha256:id", engine)
    finally:
        assert engine.running == {}


def test_mpi_is_searched_in_the_first_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searching all of it takes quadratic time."""
    said = f"{'Intel' * 400}{'HYDRA' * 19_000} (Open MPI) 4.1.4"
    assert _answer(tmp_path, monkeypatch, {"mpirun": said}).mpi == ("nothing", "")
    said = f"mpirun (Open MPI) 4.1.4\n{'Intel' * 19_000}"
    assert _answer(tmp_path, monkeypatch, {"mpirun": said}).mpi == ("openmpi", "4.1.4")


@pytest.mark.parametrize(
    ("glibc", "parsed"), [("2.36", "2.36"), ("2.3.4", "2.3"), ("2.36.1", "2.36"), ("", "")]
)
def test_contents_glibc_has_two_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, glibc: str, parsed: str
) -> None:
    assert _answer(tmp_path, monkeypatch, {"glibc": glibc}).glibc == parsed


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("os", ["debian", "12,target=/x --mount=source=.,target=/run/context"]),
        ("os", ["debian", "12\nRUN id"]),
        ("os", ["debian\n#   docker tag a b; id", "12"]),
        ("os", ["../../x", "12"]),
        ("os", ["debian", "x" * 65]),
        ("glibc", "2.x"),
        ("glibc", "2.36\n"),
        ("python", "3.6.15\n"),
        ("python", "3.9rc1"),
        ("python", "../3.6"),
        ("python", "3.6 --index-url=x"),
        ("packages", {"numpy\n": "1"}),
        ("packages", {"numpy": "1\nRequires-Dist: x"}),
        ("packages", {"numpy": "1 2"}),
        ("distributions", [["tensorflow", "2.2\x1b[2J"]]),
        ("cuda", ["10.1; id"]),
        ("mpirun", "x" * 100_001),
    ],
)
def test_contents_of_an_invalid_form_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, value: object
) -> None:
    with pytest.raises(CheckFailedError) as refused:
        _answer(tmp_path, monkeypatch, {part: value})
    assert "me/own:1" in str(refused.value)
    assert part in str(refused.value)
    assert str(refused.value).isprintable()
