"""Write a training job as ``devcontainer.json``, with its image, folders and limits."""

import json
from typing import Any

from imgbuild.core.errors import InputError
from imgbuild.training.docker_run import chown_command, gpu_options
from imgbuild.training.training_job import TENSORBOARD_PORT, WORK, TrainingJob, docker_size

#: Tools replace the image's entry point, so this starts its check of the GPU, if it has one.
_CHECK_GPU = "check=/usr/local/lib/imgbuild/gpu-start; [ ! -x $check ] || $check true"


def devcontainer_text(job: TrainingJob) -> str:
    """Return the file; the folder that contains it is the code.

    InputError: a value has ``${``, which cannot be escaped.
    """
    run = [f"--volume={mount.text}" for mount in job.mounts[1:]]
    run += [f"--shm-size={docker_size(job.shm_bytes)}", *map("=".join, gpu_options(job))]
    variables, values = {}, []
    for name, value in job.variables.items():
        if value is None:
            variables[name] = f"${{localEnv:{name}}}"
        else:
            variables[name] = value
            values.append(value)
    variables.pop("HOME", None)
    for text in (*run, *values):
        if "${" in text:  # the format has no way to escape it
            raise InputError(f"{text}: devcontainer.json would replace ${{…}} by another value.")
    document: dict[str, Any] = {
        "name": job.name,
        "image": job.image,
        "workspaceMount": f"source=${{localWorkspaceFolder}},target={WORK},type=bind",
        "workspaceFolder": WORK,
        "remoteUser": "mpiuser" if job.user else "root",
        "runArgs": run,
        "containerEnv": variables,
    }
    if job.gpus:
        document["hostRequirements"] = {"gpu": True}
        document["postStartCommand"] = {"gpu": _CHECK_GPU}
    ports = [*job.ports]
    if job.tensorboard:
        ports.append(TENSORBOARD_PORT)
    if ports:
        document["forwardPorts"] = ports
    if job.tensorboard:
        board = ["tensorboard", "--logdir", job.tensorboard, "--port", str(TENSORBOARD_PORT)]
        document["postAttachCommand"] = {"tensorboard": board}
    if first := _first_command(job):
        document["initializeCommand"] = first
    return json.dumps(document, indent=2)


def _first_command(job: TrainingJob) -> tuple[str, ...]:
    """Return the command to run before the container starts; empty if there is none."""
    if chown := chown_command(job, ("docker",)):
        return chown
    if job.only_local:
        # If the image is missing, this command fails before the tool looks for it in a registry.
        return ("docker", "image", "inspect", "--format={{.Id}}", job.image)
    return ()
