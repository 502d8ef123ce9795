"""What is in an image is read by a program in it, through the docker client."""

import os
from pathlib import Path

import pytest

from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.suites import container
from imgbuild.suites.container import ImageContents, docker_exec

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


def test_commands_run_by_the_docker_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = tmp_path / "docker"

    def run(script: str) -> str:
        client.write_text(f"#!/bin/sh\n{script}\n")
        client.chmod(0o755)
        return docker_exec("unix:///there")("c1", ["python", "-c", "x"])

    before = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="No docker client on PATH"):
        docker_exec(None)
    monkeypatch.setenv("PATH", f"{tmp_path}:{before}")
    assert run('echo "$DOCKER_HOST" "$@"') == "unix:///there exec c1 python -c x\n"
    with pytest.raises(CheckFailedError, match=r"\(exit code 127\): no such program: python"):
        run("echo some words; echo no such program: python >&2; exit 127")
    monkeypatch.setattr(container, "PROGRAM_SECONDS", 0.2)
    with pytest.raises(CheckFailedError, match=r"did not answer within 0\.2 s"):
        run("exec sleep 30")
