"""Write a training job as a Compose file: one container, MPI nodes or parameter servers.

The file only uses keys of the Compose Specification that docker-compose 1.29 of Debian 12 supports.
"""

import json
from typing import Any

import yaml

from imgbuild.training.training_job import (
    GPU_CHECK,
    MODEL,
    SAVE_SECONDS,
    TENSORBOARD_PORT,
    WORK,
    TrainingJob,
    docker_size,
)

Service = dict[str, Any]
_HEADER = """\
# Save it as compose.yaml. In Debian 12 the command is `docker-compose`.
#   {create}docker compose -p {job} run --rm --use-aliases {main}
#   docker compose -p {job} down --volumes
# `run` exits with the exit code of the training. `down` stops the other containers. Checkpoints
# stay.
"""
#: The name cannot collide: names of Docker volumes begin with a letter or digit.
_KEY_VOLUME = "_ssh"
#: The folder of the MPI user's keys, the port of that user's sshd, and a TensorFlow task's port.
_KEYS, _SSH_PORT, _TASK_PORT = "/home/mpiuser/.ssh", 2222, 2223
#: Creates a key pair for this job, which is also the host key of each node. Root owns the private
#: key, because ssh rejects a private key that others can read if ssh's user owns it.
_MAKE_KEYS = f"""\
cd {_KEYS} && test -e id_rsa || ssh-keygen -q -t ecdsa -b 521 -N '' -f id_rsa
cp id_rsa.pub authorized_keys && chmod 0644 id_rsa"""


def compose_text(job: TrainingJob) -> str:
    """Return the Compose file; its first lines explain how to run it."""
    if job.servers:
        main, services = "chief", _tasks(job)
    else:
        main, services = "train", _nodes(job)
    volumes: dict[str, dict[str, object]] = {}
    for volume in job.volumes:
        volumes[volume.source] = {"external": True, "name": volume.source}
    if job.tensorboard:
        services["tensorboard"] = _board(job.without_gpus())
        _wait(services[main], "tensorboard", "service_started")
    if prepare := _prepare(job):
        if _has_ssh(job):
            volumes[_KEY_VOLUME] = {}
        for service in services.values():
            _wait(service, "prepare", "service_completed_successfully")
        services = {"prepare": prepare, **services}
    document: dict[str, Any] = {"services": services}
    if volumes:
        document["volumes"] = volumes
    create = "".join(f"docker volume create {volume.source}\n#   " for volume in job.volumes)
    header = _HEADER.format(create=create, job=job.name, main=main)
    escaped = _escape_dollars(document)
    return header + yaml.safe_dump(escaped, sort_keys=False, width=1_000_000)


def _has_ssh(job: TrainingJob) -> bool:
    return job.nodes > 1 and not job.servers


def _nodes(job: TrainingJob) -> dict[str, Service]:
    """Return the services of an MPI job; all nodes but the first run sshd."""
    others = [f"node-{number}" for number in range(1, job.nodes)]
    hosts = ("train", *others) if others else ()
    train = _service(job, "train")
    train["command"] = [*job.launch_command(hosts)]
    probe = ["CMD", "bash", "-c", f": < /dev/tcp/127.0.0.1/{_SSH_PORT}"]
    services = {"train": train}
    for name in others:
        _wait(train, name, "service_healthy")
        node = _service(job, name)
        node["command"] = ["/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config"]
        node["healthcheck"] = {"test": probe, "interval": "2s", "retries": 30}
        services[name] = node
    return services


def _tasks(job: TrainingJob) -> dict[str, Service]:
    """Return a service per task; TF_CONFIG tells each its role and all addresses."""
    names = {"chief": ["chief"]}
    for kind, count in (("worker", job.nodes - 1), ("ps", job.servers)):
        if count:
            names[kind] = [f"{kind}-{number}" for number in range(count)]
    cluster = {}
    for kind, tasks in names.items():
        cluster[kind] = [f"{name}:{_TASK_PORT}" for name in tasks]
    services = {}
    for kind, tasks in names.items():
        for number, name in enumerate(tasks):
            task = {"type": kind, "index": number}
            config = json.dumps({"cluster": cluster, "task": task})
            service = _service(job, name)
            service["environment"] = {**job.variables, "TF_CONFIG": config}
            service["command"] = [*job.launch_command()]
            services[name] = service
            if kind != "chief":
                _wait(services["chief"], name, "service_started")
    return services


def _service(job: TrainingJob, name: str) -> Service:
    mounts = [mount.text for mount in job.mounts]
    if _has_ssh(job):
        mounts.append(f"{_KEY_VOLUME}:{_KEYS}:ro")
    service = _image(job)
    service["hostname"] = name
    if job.user:
        service["user"] = job.user
    service["working_dir"] = WORK
    service["volumes"] = mounts
    service["environment"] = job.variables
    service["shm_size"] = docker_size(job.shm_bytes)
    service["stop_grace_period"] = f"{SAVE_SECONDS}s"
    if job.gpus:
        service |= _gpus(job.gpus)
    return service


def _image(job: TrainingJob) -> Service:
    service: Service = {"image": job.image}
    if job.only_local:
        service["pull_policy"] = "never"
    return service


def _gpus(gpus: str) -> Service:
    device: dict[str, Any] = {"driver": "nvidia"}
    if gpus.startswith("device="):
        device["device_ids"] = gpus.removeprefix("device=").split(",")
    else:
        device["count"] = int(gpus) if gpus.isdigit() else "all"
    device["capabilities"] = ["gpu"]
    reservations = {"devices": [device]}
    deploy = {"resources": {"reservations": reservations}}
    return {"deploy": deploy, "ulimits": {"memlock": -1}}


def _board(job: TrainingJob) -> Service:
    board = _image(job)
    if job.user:
        board["user"] = job.user
    board["working_dir"] = WORK
    board["environment"] = job.variables
    board["volumes"] = [mount.text for mount in job.board_mounts]
    board["ports"] = [f"127.0.0.1::{TENSORBOARD_PORT}"]
    board["command"] = [*job.board_command]
    return board


def _prepare(job: TrainingJob) -> Service:
    """Return a service that root runs first, to create keys and make the volume writable."""
    mounts = [volume.text for volume in job.volumes if volume.target == MODEL]
    steps = []
    if _has_ssh(job):
        steps.append(_MAKE_KEYS)
    if mounts and job.user:
        steps.append(f"chown {job.user} {MODEL}")
    if not steps:
        return {}
    if _has_ssh(job):
        mounts.append(f"{_KEY_VOLUME}:{_KEYS}")
    service = _image(job)
    service["user"] = "0"
    if job.gpu_check:
        service["environment"] = {GPU_CHECK: "off"}
    service["volumes"] = mounts
    service["command"] = ["sh", "-ec", "\n".join(steps)]
    return service


def _wait(service: Service, name: str, condition: str) -> None:
    service.setdefault("depends_on", {})[name] = {"condition": condition}


def _escape_dollars(value: Any) -> Any:  # noqa: ANN401 - whatever YAML holds
    """Return the value with doubled dollars, so that Compose expands no variables."""
    if isinstance(value, dict):
        return {key: _escape_dollars(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escape_dollars(item) for item in value]
    return value.replace("$", "$$") if isinstance(value, str) else value
