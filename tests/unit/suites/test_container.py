"""The container of a test run: with GPUs where there are any, or with the reason why not."""

import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import fake_engine
import pytest
from fake_engine import FakeEngine

from imgbuild.engine.types import LabelledObject, RunOptions, StoredImage
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.matrix.images import Image
from imgbuild.suites import container as container_module
from imgbuild.suites.container import (
    CONTAINER_LABEL,
    ImageContents,
    StartedContainer,
    TestTarget,
    docker_exec,
    label_of,
    remove_leftovers,
    require_docker_client,
    suite_container,
)

FACTS = ((), None, None, "3.6.15")
STUB = b"\x7fELF stub"


class Refusing(FakeEngine):
    """An engine that offers GPUs and then does not give them."""

    def start(self, image: str, *, options: RunOptions, **more: object) -> str:  # type: ignore[override]
        if options.gpus:
            raise MachineError("could not select device driver\nwith capabilities: [[gpu]]")
        return super().start(image, options=options, **more)  # type: ignore[arg-type]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine offer GPUs."""
    monkeypatch.setattr(fake_engine, "VERSION", replace(fake_engine.VERSION, gpus="nvidia"))


def _engine(kind: type[FakeEngine] = FakeEngine) -> FakeEngine:
    return kind([StoredImage("sha256:id", ())])


def _export(folder: Path) -> None:
    (folder / "libcuda.so.1").write_bytes(STUB)


def _target(image: Image) -> TestTarget:
    expected = {"tensorflow": image.tensorflow}
    return TestTarget(image.name, "sha256:id", "name", image.variant, expected)


def _run(
    image: Image, engine: FakeEngine, *, stub: bool = True
) -> tuple[StartedContainer, RunOptions, list[tuple[str, bytes]], list[str]]:
    said: list[str] = []
    target = _target(image)
    if stub:
        target = replace(target, export_stub=_export)
    with suite_container(target, engine, said.append) as started:
        found = engine.running[started.id]
        seen = (started, found.options, list(found.copied), said)
    assert engine.running == {}
    return seen


@pytest.mark.usefixtures("offered")
def test_a_cpu_image_is_never_given_a_gpu(images: dict[str, Image]) -> None:
    started, options, copied, _ = _run(images["tf-1.12-cpu-ubuntu"], _engine())
    assert (started.no_gpu, options, copied) == (None, RunOptions(), [])


@pytest.mark.usefixtures("offered")
def test_a_gpu_image_gets_all_gpus_and_no_stub(images: dict[str, Image]) -> None:
    started, options, copied, _ = _run(images["tf-1.12-gpu-ubuntu"], _engine())
    assert (started.no_gpu, copied) == (None, [])
    assert (options.gpus, options.shm_bytes) == ("nvidia", 1 << 30)


def test_without_gpus_the_reason_is_kept_and_the_stub_is_copied(images: dict[str, Image]) -> None:
    started, options, copied, said = _run(images["tf-1.12-gpu-ubuntu"], _engine())
    assert started.no_gpu == "the engine offers none to containers"
    assert (options, said) == (RunOptions(), [])
    (path, archive) = copied[0]
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        member = tar.extractfile("usr/local/nvidia/lib64/libcuda.so.1")
        assert member is not None
        assert (path, tar.getnames()) == ("/", ["usr/local/nvidia/lib64/libcuda.so.1"])
        assert member.read() == STUB


@pytest.mark.usefixtures("offered")
def test_a_refusal_is_kept_in_the_engines_words(images: dict[str, Image]) -> None:
    started, options, copied, _ = _run(images["tf-1.12-gpu-ubuntu"], _engine(Refusing))
    assert started.no_gpu == "could not select device driver with capabilities: [[gpu]]"
    assert (options, len(copied)) == (RunOptions(), 1)


def test_later_tensorflow_needs_no_stub(images: dict[str, Image]) -> None:
    assert _run(images["tf-1.14-gpu-ubuntu"], _engine())[2] == []
    needing = {image.minor for image in images.values() if _target(image).needs_driver}
    assert needing == {"1.10", "1.11", "1.12", "1.13"}


@pytest.mark.parametrize("fault", [CheckFailedError("the stage fails"), OSError(28, "No space")])
def test_a_stub_that_cannot_be_made_is_reported(
    images: dict[str, Image], monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def fails(_: Path) -> None:
        raise fault

    said = _run(images["tf-1.12-gpu-ubuntu"], _engine(), stub=False)[3]
    assert said == ["no stub of the driver: the image's builder is not known"]
    monkeypatch.setattr("test_container._export", fails)
    said = _run(images["tf-1.12-gpu-ubuntu"], _engine())[3]
    assert said == [f"no stub of the driver: {fault}"]


def test_all_that_suites_start_goes_with_the_container(images: dict[str, Image]) -> None:
    engine = _engine()
    target = _target(images["tf-1.12-cpu-ubuntu"])
    with suite_container(target, engine, print) as started:
        (label,) = engine.running[started.id].labels.items()
        engine.start("sha256:id", command=["sshd"], labels=dict([label]))
        engine.nets["net"] = LabelledObject("net", dict([label]))
        other = engine.start("sha256:id", command=["x"], labels={CONTAINER_LABEL: "other"})
        engine.nets["far"] = LabelledObject("far", {CONTAINER_LABEL: "other"})
    assert (set(engine.running), set(engine.nets)) == ({other}, {"far"})


def test_leftovers_of_other_state_folders_and_images_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = _engine()
    for name in ("one", "two"):
        engine.start("sha256:id", command=["x"], labels={CONTAINER_LABEL: label_of(name)})
    remove_leftovers(["one"], engine)
    assert len(engine.running) == 1
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    remove_leftovers(["one", "two"], engine)
    assert len(engine.running) == 1


@pytest.mark.parametrize(
    ("printed", "mpi"),
    [
        ("mpirun (Open MPI) 4.1.4\n", ("openmpi", "4.1.4")),
        ("Intel(R) MPI Library for Linux* OS, Version 2018 Update 3 Build", ("intelmpi", "2018.3")),
        ("HYDRA build details:\n    Version:                 3.3\n", ("mpich", "3.3")),
        ("", ("nothing", "")),
    ],
)
def test_an_mpi_is_known_by_its_mpirun(printed: str, mpi: tuple[str, str]) -> None:
    assert ImageContents(*FACTS, printed, (), ("debian", "12")).mpi == mpi


def test_commands_run_by_the_docker_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = tmp_path / "docker"

    def run(script: str) -> str:
        client.write_text(f"#!/bin/sh\n{script}\n")
        client.chmod(0o755)
        return docker_exec("unix:///there", "c1", ["python", "-c", "x"])

    before = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="No docker client on PATH"):
        require_docker_client()
    monkeypatch.setenv("PATH", f"{tmp_path}:{before}")
    assert run('echo "$DOCKER_HOST" "$@"') == "unix:///there exec c1 python -c x\n"
    with pytest.raises(CheckFailedError, match=r"\(exit code 127\): no such program: python"):
        run("echo some words; echo no such program: python >&2; exit 127")
    monkeypatch.setattr(container_module, "PROGRAM_SECONDS", 0.2)
    with pytest.raises(CheckFailedError, match=r"did not answer within 0\.2 s"):
        run("exec sleep 30")
