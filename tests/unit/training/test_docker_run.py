"""A job as ``docker run``: the printed lines, and what is refused when they are to be run.

How a job is run and ended is tested in tests/e2e/test_run_job.py.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from imgbuild.core.errors import MachineError
from imgbuild.training.docker_run import run_job
from imgbuild.training.training_job import TrainingJob
from support.run_words import IMAGE, PROGRAM, docker_lines, printed, ran


def test_every_command_can_be_pasted(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    text = printed(
        tmp_path,
        *("-np", "2", "--checkpoints", "kept", "--tensorboard", "logs", "--port", "88"),
        *("--mount", f"{tmp_path}/data:/data:ro", "--env", "A=it's $5", "--env", "TOKEN"),
        *PROGRAM,
    )
    mounts = f"--volume {tmp_path}:/work --volume kept:/model --volume {tmp_path}/data:/data:ro"
    mounts_ro = mounts.replace(":/work", ":/work:ro").replace(":/model", ":/model:ro")
    user, never = ["--user", "1000:1000"], ("--pull", "never")
    env = ["--env", "MODEL_DIR=/model", "--env", "A=it's $5", "--env", "TOKEN"]
    limits = "--publish 127.0.0.1:88:88 --shm-size 1g --stop-timeout 30"
    owner, board, port, train, stop = docker_lines(text)
    assert owner == [
        *("docker", "run", "--rm", *never, "--user", "0", "--volume", "kept:/model", IMAGE),
        *("chown", "1000:1000", "/model"),
    ]
    assert board == [
        *("docker", "run", "--rm", *never, "--name", "train-tensorboard", "--detach", *user),
        *(*mounts_ro.split(), "--publish", "127.0.0.1::6006", *env, "--workdir", "/work", IMAGE),
        *("tensorboard", "--logdir", "logs", "--host", "0.0.0.0", "--port", "6006"),  # noqa: S104
    ]
    assert port == ["docker", "port", "train-tensorboard", "6006"]
    assert train == [
        *("docker", "run", "--rm", *never, "--name", "train", *user, *mounts.split()),
        *(*limits.split(), *env, "--workdir", "/work", IMAGE),
        *("mpirun", "-np", "2", "--oversubscribe", "-bind-to", "none", "python", "train.py"),
    ]
    assert stop == ["docker", "stop", "train-tensorboard"]
    shell = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (shell.returncode, shell.stderr) == (0, "")


def test_the_engine_of_the_settings_is_named(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("engine: {host: 'unix:///run/other.sock'}\n")
    code, text = ran(tmp_path, "a:1", *PROGRAM, env={"IMGBUILD_SETTINGS": str(settings)})
    assert code == 0
    assert text.startswith("docker -H unix:///run/other.sock run --rm --pull never --name train ")


@pytest.mark.parametrize(
    ("image", "pulled"),
    [
        ("me/train:1", False),
        ("docker.io/me/train:1", True),
        ("localhost/train:1", True),
        ("host:5000/train@sha256:0", True),
    ],
)
def test_only_what_names_its_registry_is_pulled(
    tmp_path: Path, image: str, *, pulled: bool
) -> None:
    words = (image, "--user", "7", "--tensorboard", "x", "--checkpoints", "kept")
    never = 0 if pulled else 3
    assert ran(tmp_path, *words, *PROGRAM)[1].count("--pull never") == never
    text = ran(tmp_path, *words, "--format", "compose", *PROGRAM)[1]
    assert text.count("pull_policy: never") == never
    container = json.loads(ran(tmp_path, *words[:1], "--format", "devcontainer")[1])
    there = ["docker", "image", "inspect", "--format={{.Id}}", image]
    assert container.get("initializeCommand") == (None if pulled else there)


def test_without_a_client_nothing_is_run(tmp_path: Path) -> None:
    words = ("a:1", "--exec", *PROGRAM)
    code, text = ran(tmp_path, *words, env={"PATH": str(tmp_path)})
    assert (code, text.count("\n")) == (3, 0)
    assert text.startswith("--exec: ")


def test_a_folder_or_root_needs_no_other_owner(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    assert "chown" not in printed(tmp_path, "--checkpoints", f"{tmp_path}/kept", *PROGRAM)
    assert "chown" not in printed(tmp_path, "--checkpoints", "kept", "--user", "0", *PROGRAM)


def test_a_volume_that_cannot_be_prepared_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client notes its words, and fails."""
    client = tmp_path / "docker"
    client.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/notes\nexit 3\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    command = ("python", "train.py")
    job = TrainingJob("train", "a:1", command, tmp_path, checkpoints="kept", user="1000:1000")
    with pytest.raises(MachineError, match="exit code 3"):
        run_job(job, ("docker",), print)
    (noted,) = (tmp_path / "notes").read_text().splitlines()
    assert noted.endswith("chown 1000:1000 /model")


@pytest.mark.parametrize(("code", "said"), [(1, True), (0, False)])
def test_a_missing_module_ends_with_the_command_that_adds_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], *, code: int, said: bool
) -> None:
    """A program may also do without the module; then nothing is said."""
    client = tmp_path / "docker"
    error = "ModuleNotFoundError: No module named 'pandas.core'"
    client.write_text(f'#!/bin/sh\n[ $1 = rm ] || {{ echo "{error}" >&2; exit {code}; }}\n')
    client.chmod(0o755)
    lines: list[str] = []
    job = TrainingJob("train", "a:1", ("python", "train.py"), tmp_path)
    assert run_job(job, (str(client),), lines.append, "tf-2.2-cpu-debian") == code
    assert capfd.readouterr().err == f"{error}\n"
    command = "`imgbuild extend tf-2.2-cpu-debian --pip pandas`"
    assert [command in line for line in lines] == [True] * said
