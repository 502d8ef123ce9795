"""Command lines that a finished build or extension prints: how to run its image."""

from typing import TYPE_CHECKING

from imgbuild.engine.discovery import docker_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgbuild.matrix.images import Image


def docker_run_words(host: str | None, image: "Image | None") -> str:
    """Return the words that run an image, or what was built on it, as the caller, in this folder.

    No other than this engine's: Docker Hub has a stranger's by its name.
    """
    gpus = " --gpus all" if image and image.variant == "gpu" else ""
    user = f'--user "$(id -u):$(id -g)" -e HOME=/tmp{gpus}'
    return f'{docker_command(host)} run --rm --pull never {user} -v "$PWD:/work" -w /work \\\n     '


def usage_lines(images: "Sequence[Image]", host: str | None) -> str:
    """Return how to use the first image, in any folder: one rank, two, TensorBoard."""
    first, *others = images
    name, run = first.tags[0], docker_run_words(host, first)
    ranks = "-np 2 --oversubscribe" if first.mpi.flavour == "openmpi" else "-np 2"
    horovod = ""
    if first.horovod:
        horovod = f"""
  {run} {name} mpirun {ranks} \\
      python -c "import horovod.tensorflow as hvd; hvd.init(); print(hvd.rank(), hvd.size())\""""
    lines = f"""
Use {"them, such as the first" if others else "it"}:
  {run} {name} python -c "import tensorflow as tf; print(tf.__version__)"{horovod}
  {run} -p 127.0.0.1:6006:6006 {name} \\
      tensorboard --logdir . --host 0.0.0.0
The last shows this folder at http://localhost:6006. Your own program: imgbuild run."""
    changes = ["their own name in its place (imgbuild list)"] if others else []
    if {"cpu", "gpu"} == {image.variant for image in images}:
        changes.append("--gpus all only with those for GPUs")
    if len({image.mpi.flavour for image in images}) > 1:
        changes.append("--oversubscribe only with OpenMPI")
    return f"{lines}\nThe others: {'; '.join(changes)}." if others else lines
