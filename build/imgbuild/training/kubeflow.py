"""Write a training job as a manifest for Kubeflow's operators: MPIJob v2beta1 or TFJob v1.

docs/kubernetes.md explains how the operators and the image depend on each other.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from imgbuild.core.errors import InputError
from imgbuild.training.training_job import MPI_USER, WORK, TrainingJob, docker_size

Resource = dict[str, Any]
_HEADER = """\
# {title}
#   kubectl create configmap {name}-code --from-file={code}
#   kubectl apply -f THIS_FILE
"""
_CLAIM = "# The claim {} is a folder that all pods share: its access mode is ReadWriteMany.\n"
#: The name of a volume or claim in Kubernetes. Source: RFC 1123.
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
#: The volumes of every manifest in addition to claims: configuration map and shared memory.
_OWN = ("code", "shm")
_SSH_PORT, _TASK_PORT = 2222, 2222
#: Waits until workers can resolve the launcher's name, because Intel MPI's workers connect to it.
_WAIT_FOR_NAMES = """\
worker=$(head -n 1 /etc/mpi/hostfile) && worker=${worker%%:*}
for _ in {1..60}; do
    if ssh -F /etc/ssh/ssh_config_mpi "$worker" getent hosts "$(hostname)"; then break; fi
    sleep 1
done
exec "$@"
"""


def mpijob_text(job: TrainingJob) -> str:
    """Return the manifest of an MPIJob with a launcher and one worker per node."""
    _check(job)
    spec: Resource = {}
    unlimited = replace(job, seconds=0)  # the operator ends the job
    start = [*map(_escape_dollars, unlimited.launch_command(hostfile=True))]
    if job.mpi == "intelmpi":
        spec["mpiImplementation"] = "Intel"
        start = ["/bin/bash", "-c", _WAIT_FOR_NAMES, "bash", *start]
    launcher = _container(job.without_gpus(), "launcher", start)
    sshd = ["/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config"]
    worker = _container(job, "worker", sshd)
    worker |= _gpu_limit(job)
    probe = {"tcpSocket": {"port": _SSH_PORT}, "initialDelaySeconds": 1, "periodSeconds": 2}
    worker["readinessProbe"] = probe
    workers = _replica(job, job.nodes, worker)
    workers["restartPolicy"] = "Never"
    spec["slotsPerWorker"] = job.ranks_per_node
    spec["sshAuthMountPath"] = "/home/mpiuser/.ssh"
    spec["launcherCreationPolicy"] = "WaitForWorkersReady"
    spec["runPolicy"] = _run_policy(job, "Running")
    spec["mpiReplicaSpecs"] = {"Launcher": _replica(job, 1, launcher), "Worker": workers}
    title = f"{job.ranks} ranks on {job.nodes} workers, by Kubeflow's MPI operator (v2beta1)."
    return _text(job, title, "kubeflow.org/v2beta1", "MPIJob", spec)


def tfjob_text(job: TrainingJob) -> str:
    """Return the manifest of a TFJob; the operator tells each pod its role in TF_CONFIG."""
    _check(job)
    unlimited = replace(job, seconds=0)  # the operator ends the job
    command = [*map(_escape_dollars, unlimited.launch_command())]
    counts = {"Chief": 1, "Worker": job.nodes - 1, "PS": job.servers}
    replicas = {}
    for kind, count in counts.items():
        if count:
            if kind == "PS":
                task = _task_container(job.without_gpus(), command)
            else:
                task = _task_container(job, command) | _gpu_limit(job)
            replicas[kind] = _replica(job, count, task)
    spec = {"runPolicy": _run_policy(job, "All"), "tfReplicaSpecs": replicas}
    parts = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    title = f"{parts}, by Kubeflow's training operator (v1)."
    return _text(job, title, "kubeflow.org/v1", "TFJob", spec)


def _task_container(job: TrainingJob, command: Sequence[str]) -> Resource:
    """Return the container of a task; the operator finds it and its port by their names."""
    container = _container(job, "tensorflow", command)
    container["ports"] = [{"name": "tfjob-port", "containerPort": _TASK_PORT}]
    return container


def _check(job: TrainingJob) -> None:
    """Raise InputError for options that a manifest cannot express, for example local folders."""
    claims = _claims(job)
    folders = [mount.source for mount in job.mounts[1:] if not mount.is_volume]
    invalid = [claim for claim in claims if not _LABEL.fullmatch(claim)]
    taken = [claim for claim in claims if claim in _OWN]
    unset = [name for name, value in job.variables.items() if value is None]
    for names, problem in (
        (folders, "a cluster cannot mount a folder of this machine; name a claim"),
        (invalid, "the name of a claim may only have lower-case letters, digits and '-'"),
        (taken, "the manifest uses this name for another volume; rename the claim"),
        (unset, "--env without a value cannot be passed on to a cluster; give NAME=VALUE"),
    ):
        if names:
            raise InputError(f"{names[0]}: {problem}.")
    if job.gpus and job.gpus.startswith("device="):
        raise InputError(f"--gpus {job.gpus}: Kubernetes chooses the GPUs; give their number.")


def _claims(job: TrainingJob) -> list[str]:
    """Return the names of the claims without duplicates; a claim may be mounted several times."""
    return [*dict.fromkeys(volume.source for volume in job.volumes)]


def _container(job: TrainingJob, name: str, command: Sequence[str]) -> Resource:
    """Return a container; its command is in `args`, so that the image's entry point starts it."""
    mounts: list[Resource] = [{"name": "code", "mountPath": WORK, "readOnly": True}]
    for volume in job.volumes:
        mount: Resource = {"name": volume.source, "mountPath": volume.target}
        if volume.read_only:
            mount["readOnly"] = True
        mounts.append(mount)
    mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108
    container: Resource = {"name": name, "image": job.image, "workingDir": WORK}
    container["securityContext"] = {"runAsUser": int(MPI_USER)}
    container["args"] = [*command]
    variables = []
    for variable, value in job.variables.items():
        text = _escape_dollars(str(value))
        variables.append({"name": variable, "value": text})
    if variables:
        container["env"] = variables
    container["volumeMounts"] = mounts
    return container


def _gpu_limit(job: TrainingJob) -> Resource:
    """Return the GPU limit of a training container; the default is one GPU per rank."""
    if not job.gpus:
        return {}
    count = int(job.gpus) if job.gpus.isdigit() else job.ranks_per_node
    return {"resources": {"limits": {"nvidia.com/gpu": count}}}


def _replica(job: TrainingJob, count: int, container: Resource) -> Resource:
    """Return a replica specification for ``count`` pods; their group may write to claims."""
    pod: Resource = {}
    if job.volumes:
        pod["securityContext"] = {"fsGroup": int(MPI_USER)}
    code = {"name": f"{job.name}-code"}
    volumes: list[Resource] = [{"name": "code", "configMap": code}]
    volumes += [
        {"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in _claims(job)
    ]
    size = docker_size(job.shm_bytes).upper()
    memory = {"medium": "Memory", "sizeLimit": f"{size}i"}
    volumes.append({"name": "shm", "emptyDir": memory})
    pod["containers"] = [container]
    pod["volumes"] = volumes
    return {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": pod}}


def _run_policy(job: TrainingJob, clean: str) -> Resource:
    policy: Resource = {"cleanPodPolicy": clean, "backoffLimit": 3}
    if job.seconds:
        policy["activeDeadlineSeconds"] = job.seconds
    return policy


def _text(job: TrainingJob, title: str, version: str, kind: str, spec: Resource) -> str:
    here = Path.cwd()
    code = job.code.relative_to(here) if job.code.is_relative_to(here) else job.code
    quoted = shlex.quote(str(code))
    header = _HEADER.format(title=title, name=job.name, code=quoted)
    for claim in _claims(job):
        header += _CLAIM.format(claim)
    document = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": job.name},
        "spec": spec,
    }
    return header + yaml.dump(document, Dumper=_ManifestDumper, sort_keys=False, width=1_000_000)


class _ManifestDumper(yaml.SafeDumper):
    """Writes YAML without anchors, and scripts with one line per line."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002 - as in yaml
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_ManifestDumper.add_representer(str, _represent_text)


def _escape_dollars(word: str) -> str:
    """Return a word with doubled dollars, so that Kubernetes expands no ``$(NAME)``.

    Source: the documentation of Kubernetes, "Define Dependent Environment Variables".
    """
    return word.replace("$", "$$")
