"""A job as a Compose file: valid, and with what each service must have."""

import json
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from support.run_words import IMAGE, PROGRAM, printed

#: The package has the schema of the Compose Specification.
SPECIFICATION = files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json"


def _compose(folder: Path, *words: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(printed(folder, "--format", "compose", *words))
    schema = jsonschema.Draft202012Validator(json.loads(SPECIFICATION.read_text(encoding="utf-8")))
    schema.validate(document)
    assert not schema.is_valid({"services": {"a": {"shm_sizes": "1g"}}})
    return document


def test_one_node_is_what_docker_run_has(tmp_path: Path) -> None:
    words = ("-np", "9", "--time-limit", "5m", "--env", "A=$HOME", "--env", "TOKEN")
    found = _compose(tmp_path, *words, *PROGRAM)
    limit = "timeout --foreground --signal=USR1 --kill-after=30 300"
    ranks = "mpirun -np 9 --oversubscribe -bind-to none"
    assert found == {
        "services": {
            "train": {
                "image": IMAGE,
                "pull_policy": "never",
                "hostname": "train",
                "user": "1000:1000",
                "working_dir": "/work",
                "volumes": [f"{tmp_path}:/work"],
                "environment": {"A": "$$HOME", "TOKEN": None},
                "shm_size": "1152m",
                "stop_grace_period": "30s",
                "command": [*limit.split(), *ranks.split(), "python", "train.py"],
            }
        }
    }


def test_nodes_wait_for_each_other_and_for_keys(tmp_path: Path) -> None:
    options = ("--nodes", "3", "-np", "6", "--checkpoints", "kept", "--env", "A=1")
    found = _compose(tmp_path, *options, *PROGRAM)
    services = found["services"]
    assert [*services] == ["prepare", "train", "node-1", "node-2"]
    assert found["volumes"] == {"kept": {"external": True, "name": "kept"}, "_ssh": {}}
    hosts = "mpirun -np 6 -H train:2,node-1:2,node-2:2 -bind-to none -x MODEL_DIR -x A"
    assert services["train"]["command"] == [*hosts.split(), "python", "train.py"]
    assert services["train"]["depends_on"] == {
        "node-1": {"condition": "service_healthy"},
        "node-2": {"condition": "service_healthy"},
        "prepare": {"condition": "service_completed_successfully"},
    }
    assert "_ssh:/home/mpiuser/.ssh:ro" in services["node-2"]["volumes"]
    assert services["prepare"]["command"][-1].endswith("chown 1000:1000 /model")


def test_no_volume_of_the_user_is_that_of_the_keys(tmp_path: Path) -> None:
    """`down --volumes` removes the keys, and never what the user keeps."""
    words = ("--nodes", "2", "--checkpoints", "ssh", "--mount", "keys:/keys")
    volumes = _compose(tmp_path, *words, *PROGRAM)["volumes"]
    kept = {name for name, one in volumes.items() if one == {"external": True, "name": name}}
    assert (kept, len(volumes)) == ({"ssh", "keys"}, 3)


@pytest.mark.parametrize(("nodes", "hosts"), [("1", ""), ("2", "-ppn 2 -hosts train,node-1 ")])
def test_intel_mpi_names_nodes_in_its_own_way(tmp_path: Path, nodes: str, hosts: str) -> None:
    options = ("--mpi", "intelmpi", "--nodes", nodes, "-np", "4")
    command = _compose(tmp_path, *options, *PROGRAM)["services"]["train"]["command"]
    assert shlex.join(command) == f"mpirun -np 4 {hosts}python train.py"


def test_each_task_knows_its_part(tmp_path: Path) -> None:
    options = ("--nodes", "3", "--ps", "1", "--checkpoints", "kept", "--time-limit", "1m")
    services = _compose(tmp_path, *options, *PROGRAM)["services"]
    assert [*services] == ["prepare", "chief", "worker-0", "worker-1", "ps-0"]
    cluster = {
        "chief": ["chief:2223"],
        "worker": ["worker-0:2223", "worker-1:2223"],
        "ps": ["ps-0:2223"],
    }
    assert services.pop("prepare")["volumes"] == ["kept:/model"]
    for name, service in services.items():
        kind, _, number = name.partition("-")
        config = json.loads(service["environment"]["TF_CONFIG"])
        assert config == {"cluster": cluster, "task": {"type": kind, "index": int(number or 0)}}
        limit = "timeout --foreground --signal=TERM --kill-after=30 60 python train.py"
        assert shlex.join(service["command"]) == limit
    assert set(services["chief"]["depends_on"]) == {"worker-0", "worker-1", "ps-0", "prepare"}


@pytest.mark.parametrize(
    ("gpus", "device"),
    [("all", {"count": "all"}), ("2", {"count": 2}), ("device=0,1", {"device_ids": ["0", "1"]})],
)
def test_gpus_are_reserved(tmp_path: Path, gpus: str, device: dict[str, Any]) -> None:
    service = _compose(tmp_path, "--gpus", gpus, *PROGRAM)["services"]["train"]
    (found,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert found == {"driver": "nvidia", **device, "capabilities": ["gpu"]}
    assert service["ulimits"] == {"memlock": -1}


def test_only_services_with_gpus_require_them(tmp_path: Path) -> None:
    options = ("--gpus", "all", "--tensorboard", "logs", "--checkpoints", "kept", *PROGRAM)
    services = _compose(tmp_path, *options)["services"]
    checks = {name: one["environment"]["IMGBUILD_GPU"] for name, one in services.items()}
    assert checks == {"prepare": "off", "tensorboard": "off", "train": "require"}


def test_tensorboard_only_reads(tmp_path: Path) -> None:
    options = ("--tensorboard", "logs", "--checkpoints", "kept")
    services = _compose(tmp_path, *options, *PROGRAM)["services"]
    board = services["tensorboard"]
    assert board["volumes"] == [f"{tmp_path}:/work:ro", "kept:/model:ro"]
    assert board["ports"] == ["127.0.0.1::6006"]
    assert board["command"][:3] == ["tensorboard", "--logdir", "logs"]
    assert services["train"]["depends_on"]["tensorboard"] == {"condition": "service_started"}
