"""Write a training job as a batch script for Slurm, which runs the image with Apptainer."""

import shlex
from collections.abc import Iterator

from imgbuild.core.errors import InputError
from imgbuild.training.training_job import WORK, TrainingJob, shell_command

_HEADER = """\
# Convert the image into a file once:
#   apptainer build {file} docker://{image}"""


def batch_text(job: TrainingJob) -> str:
    """Return the script.

    Like Docker, Slurm sends SIGTERM at the time limit, and SIGKILL 30 seconds later.

    InputError: the job has a volume, a path with a comma, selected GPUs, or ranks of Intel MPI on
    several nodes.
    """
    for mount in job.mounts:
        if mount.is_volume:
            problem = "Slurm has no volumes; name a folder that all nodes share, for example"
            raise InputError(f"{mount.source}: {problem} ./{mount.source}.")
        if "," in mount.text:
            raise InputError(f"{mount.text}: Apptainer cannot mount a path with a comma.")
    if (job.gpus or "").startswith("device="):
        raise InputError(f"--gpus {job.gpus}: Slurm chooses the GPUs; give their number.")
    if job.nodes > 1 and job.mpi == "intelmpi":
        raise InputError(
            "--nodes: Intel MPI in the image cannot start ranks on other Slurm nodes without the "
            "cluster's libpmi2.so. Use an image with Open MPI, or a single node."
        )
    return "\n".join(_lines(job))


def _lines(job: TrainingJob) -> Iterator[str]:
    file = f"{job.name}.sif"
    yield "#!/bin/bash"
    yield from (f"#SBATCH {option}" for option in _allocation(job))
    yield _HEADER.format(file=file, image=job.image)
    yield "set -eu"
    # The entry point would name users whom the image does not know by their numbers.
    for name in ("USER", "LOGNAME"):
        if name not in job.variables:
            yield f'export APPTAINERENV_{name}="$(id -un)"'
    # Apptainer mounts the user's home, and packages in it would hide the image's packages.
    variables = {"PYTHONNOUSERSITE": "1", **job.variables}
    variables.pop("HOME", None)
    for name, value in variables.items():
        if value is not None:  # Apptainer passes on the other variables
            yield f"export APPTAINERENV_{name}={shlex.quote(value)}"
    binds = [("--bind", mount.text) for mount in job.mounts]
    # `apptainer exec` would bypass the entry point, and with it the check of the GPU.
    lines = [("apptainer", "run", *(["--nv"] if job.gpus else [])), *binds, ("--pwd", WORK)]
    # On one node, the image's mpirun starts the ranks. On several nodes, Slurm starts them through
    # PMIx, because Debian's Open MPI supports nothing else (`ompi_info`).
    command = job.command if job.nodes > 1 else job.launch_command()
    start = [("srun", "--mpi=pmix")] if job.nodes > 1 else []
    yield shell_command([*start, *lines, (file,), command])


def _allocation(job: TrainingJob) -> Iterator[str]:
    yield f"--job-name={job.name}"
    yield f"--nodes={job.nodes}"
    yield f"--ntasks-per-node={job.ranks_per_node}"
    if job.gpus:
        yield f"--gpus-per-node={job.gpus if job.gpus.isdigit() else job.ranks_per_node}"
    if job.seconds:
        # On one node, `timeout` ends the ranks first, so Slurm's limit must be a minute longer.
        minutes = -(-job.seconds // 60) + (job.nodes == 1)
        yield f"--time={minutes}"
