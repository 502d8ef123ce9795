"""Commands that run an image, printed after a build or an extension."""

from typing import TYPE_CHECKING

from imgbuild.engine.discovery import docker_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgbuild.matrix.images import Image


def docker_run_words(host: str | None, image: "Image | None") -> str:
    """Return the command that runs an image as the current user in the current folder.

    ``--pull never`` uses only the engine's image, because somebody else may own its name on Docker
    Hub. ``image`` is the image of the matrix that was run or extended, if any.
    """
    gpus = " --gpus all" if image and image.variant == "gpu" else ""
    user = f'--user "$(id -u):$(id -g)" -e HOME=/tmp{gpus}'
    return f'{docker_command(host)} run --rm --pull never {user} -v "$PWD:/work" -w /work \\\n     '


def usage_lines(images: "Sequence[Image]", host: str | None) -> str:
    """Return commands that use the first image: one process, two ranks, and TensorBoard."""
    first, *others = images
    name, run = first.tags[0], docker_run_words(host, first)
    ranks = "-np 2 --oversubscribe" if first.mpi.flavour == "openmpi" else "-np 2"
    horovod = ""
    if first.horovod:
        horovod = f"""
  {run} {name} mpirun {ranks} \\
      python -c "import horovod.tensorflow as hvd; hvd.init(); print(hvd.rank(), hvd.size())\""""
    lines = f"""
Use {"them, for example the first" if others else "it"}:
  {run} {name} python -c "import tensorflow as tf; print(tf.__version__)"{horovod}
  {run} -p 127.0.0.1:6006:6006 {name} \\
      tensorboard --logdir . --host 0.0.0.0
The last command shows this folder at http://localhost:6006. Run your own program: imgbuild run."""
    changes = ["use their names (imgbuild list)"] if others else []
    if {"cpu", "gpu"} == {image.variant for image in images}:
        changes.append("use --gpus all only for GPU images")
    if len({image.mpi.flavour for image in images}) > 1:
        changes.append("use --oversubscribe only with OpenMPI")
    return f"{lines}\nFor the other images: {'; '.join(changes)}." if others else lines
