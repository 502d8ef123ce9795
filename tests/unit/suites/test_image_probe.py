"""What is in an image is read by a program in it, through the docker client."""

import os
from pathlib import Path

import pytest

from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.suites import image_probe
from imgbuild.suites.image_probe import ImageContents, docker_exec

FACTS = ((), None, None, "3.6.15")


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


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the docker client of this test: a script."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path / "docker"


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_commands_run_by_the_docker_client(client: Path) -> None:
    _script(client, 'echo "$DOCKER_HOST" "$@"')
    execute = docker_exec("unix:///there")
    assert execute("c1", ["python", "-c", "x"]) == "unix:///there exec c1 python -c x\n"


def test_a_command_that_fails(client: Path) -> None:
    _script(client, "echo some words; echo no such program: python >&2; exit 127")
    with pytest.raises(CheckFailedError, match=r"\(exit code 127\): no such program: python"):
        docker_exec(None)("c1", ["python"])


def test_a_command_that_does_not_end(client: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_probe, "SECONDS", 0.2)
    _script(client, "exec sleep 30")
    with pytest.raises(CheckFailedError, match=r"did not answer within 0\.2 s"):
        docker_exec(None)("c1", ["python"])


def test_without_a_docker_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="No docker client on PATH"):
        docker_exec(None)
