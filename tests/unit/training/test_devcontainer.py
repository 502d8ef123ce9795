"""A job as devcontainer.json, against the specification's schema."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import ROOT
from run_words import IMAGE, ran

SCHEMA = json.loads(
    (ROOT / "tests/data/devcontainer/devContainer.base.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = jsonschema.Draft201909Validator(SCHEMA)


def _container(folder: Path, *words: str) -> dict[str, Any]:
    given = ("--tf", "2.2", "--format", "devcontainer", "--user", "4321:99", *words)
    code, text = ran(folder, *given)
    assert code == 0, text
    found: dict[str, Any] = json.loads(text)
    VALIDATOR.validate(found)
    return found


@pytest.mark.parametrize(
    "wrong", [{"runArgs": "x"}, {"forwardPorts": ["x y"]}, {"runArg": []}], ids=str
)
def test_the_schema_refuses_wrong_values(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({"image": "a", **wrong})


def test_it_has_what_the_job_has(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    options = ("--checkpoints", "kept", "--tensorboard", "my logs", "--shm-size", "2g")
    ports = ("--port", "88")
    more = ("--gpus", "all", "--env", "A=1", "--env", "TOKEN", "--mount", f"{tmp_path}/data:/d:ro")
    owner = (
        f"docker run --rm --pull never --user 0 --volume kept:/model {IMAGE} chown 4321:99 /model"
    )
    board = ["tensorboard", "--logdir", "my logs", "--port", "6006"]
    assert _container(tmp_path, *options, *ports, *more) == {
        "name": "train",
        "image": IMAGE,
        "workspaceMount": "source=${localWorkspaceFolder},target=/work,type=bind",
        "workspaceFolder": "/work",
        "remoteUser": "mpiuser",
        "runArgs": [
            *("--volume=kept:/model", f"--volume={tmp_path}/data:/d:ro"),
            *("--shm-size=2g", "--gpus=all", "--ulimit=memlock=-1"),
        ],
        "containerEnv": {"MODEL_DIR": "/model", "A": "1", "TOKEN": "${localEnv:TOKEN}"},
        "hostRequirements": {"gpu": True},
        "forwardPorts": [88, 6006],
        "postAttachCommand": {"tensorboard": board},
        "initializeCommand": owner.split(),
    }
