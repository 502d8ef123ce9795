"""A job as devcontainer.json, against the specification's schema."""

import json
import subprocess
from pathlib import Path

import jsonschema

from support.project_copy import ROOT
from support.run_words import IMAGE, ran

SCHEMA = ROOT / "tests/data/devcontainer/devContainer.base.schema.json"


def test_it_has_what_the_job_has(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    options = ("--checkpoints", "kept", "--tensorboard", "my logs", "--shm-size", "2g")
    more = ("--env", "A=1", "--env", "TOKEN", "--mount", f"{tmp_path}/data:/d:ro", "--port", "88")
    given = ("--tf", "2.2", "--format", "devcontainer", "--user", "4321:99", "--gpus", "device=0,1")
    code, text = ran(tmp_path, *given, *options, *more)
    assert code == 0, text
    document = json.loads(text)
    root = "docker run --rm --pull never --user 0 --volume kept:/model --env IMGBUILD_GPU=off"
    owner = f"{root} {IMAGE} chown 4321:99 /model"
    check = document.pop("postStartCommand")["gpu"]
    assert "/usr/local/lib/imgbuild/gpu-start" in check
    subprocess.run(["sh", "-c", check], check=True)  # an image without the check
    board = ["tensorboard", "--logdir", "my logs", "--port", "6006"]
    assert document == {
        "name": "train",
        "image": IMAGE,
        "workspaceMount": "source=${localWorkspaceFolder},target=/work,type=bind",
        "workspaceFolder": "/work",
        "remoteUser": "mpiuser",
        "runArgs": [
            *("--volume=kept:/model", f"--volume={tmp_path}/data:/d:ro"),
            *("--shm-size=2g", '--gpus="device=0,1"', "--ulimit=memlock=-1"),  # Docker reads CSV
        ],
        "containerEnv": {
            "MODEL_DIR": "/model",
            "IMGBUILD_GPU": "require",
            "A": "1",
            "TOKEN": "${localEnv:TOKEN}",
        },
        "hostRequirements": {"gpu": True},
        "forwardPorts": [88, 6006],
        "postAttachCommand": {"tensorboard": board},
        "initializeCommand": owner.split(),
    }
    schema = jsonschema.Draft201909Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    schema.validate(document)
    for key, value in (("runArgs", "x"), ("forwardPorts", ["x y"]), ("runArg", [])):
        assert not schema.is_valid({**document, key: value})
