"""What ``imgbuild build`` prints of a plan, of nothing to do, and of how to use an image."""

from collections.abc import Sequence

from imgbuild.matrix.images import Image
from imgbuild.plan.plan import PlanItem


def plan_lines(items: Sequence[PlanItem]) -> str:
    """Return one line an image: what would be done, and why."""
    width = max(len(item.image.name) for item in items)
    lines = [f"{item.image.name:<{width}}  {item.action:<7}  {item.reason}" for item in items]
    busy = sum(1 for item in items if item.busy)
    lines.append(f"Something to do for {busy} of {len(items)}." if busy else idle_line(items))
    return "\n".join(lines)


def idle_line(items: Sequence[PlanItem]) -> str:
    """Return the line that says that there is nothing to do."""
    names = ", ".join(item.image.tags[0] for item in items)
    count = "1 image is" if len(items) == 1 else f"{len(items)} images are"
    return f"Nothing to do: {count} up to date ({names})."


def usage_lines(image: Image, host: str | None) -> str:
    """Return how to use the image: a shell, two ranks, TensorBoard."""
    client = f"docker -H {host}" if host and host != "unix:///var/run/docker.sock" else "docker"
    name = image.tags[0]
    run = f"{client} run --rm{_run_options(image)}"
    ranks = "-np 2 --oversubscribe" if image.mpi.flavour == "openmpi" else "-np 2"
    return f"""
Use it:
  {run} -it -v "$PWD:/work" -w /work {name} python train.py
  {run} -v "$PWD:/work" -w /work {name} mpirun {ranks} python train.py
  {run} -p 6006:6006 -v "$PWD/logs:/logs" {name} \\
      tensorboard --logdir /logs --host 0.0.0.0     then open http://localhost:6006"""


def _run_options(image: Image) -> str:
    """Return what a container needs beside."""
    return " --gpus all" if image.variant == "gpu" else ""
