"""``imgbuild list``: list the images of the matrix, or find those that will run on a GPU."""

from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.cli.options import JSON, PROJECT, flag, option, print_result, select, takes_selection
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.core.text import align_rows
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image

_WIDE = ("driver", "MB at most", "tags")


@takes_selection(without="everything")
def list_images(
    selection: Selection,
    gpu_model: str | None = option(
        "--gpu-model MODEL",
        "GPU model, for example 'Tesla V100', or compute capability, for example 7.0.",
    ),
    driver: str | None = option("--driver VERSION", "NVIDIA driver version, for example 450.80."),
    here: bool = flag("--here", "Use the GPUs and the driver of this machine, if it has any."),
    python: str | None = option("--python VERSION", "Python version, for example 3.6 or >=3.8."),
    requirements: Path | None = option(
        "--requirements -r FILE",
        "Requirements or conda file. Its TensorFlow and its Python decide which images will run.",
    ),
    wide: bool = flag("--wide", "Also show the oldest driver, the size budget and the tags."),
    as_json: bool = JSON,
    checkout: Project = PROJECT,
) -> None:
    """List all images, or find those that will run on your GPU.

    The list does not use the defaults: `--tf 2.2` lists every stack, variant and MPI. With
    --gpu-model, --driver, --here, --python or --requirements, the command also gives the first
    reason why each other image will not run, and exits with 1 if no image will run.

    A requirements file excludes images only by its TensorFlow and Python. The command lists the
    other lines that differ from an image, and the `imgbuild extend` command that adds the rest. If
    more than six images will run, it does so only for the best one.

    Example: imgbuild list --gpu-model A100 --driver 535
    """
    from imgbuild.matrix.images import planned_tags

    if gpu_model or driver or here or python or requirements:
        from imgbuild.cli.fitting_images import print_fitting, read_need

        if wide:
            raise InputError(
                "--wide cannot be combined with --gpu-model, --driver, --here, --python or "
                "--requirements."
            )
        need = read_need(gpu_model, driver, python, requirements, here=here)
        images = select(checkout, selection.without_defaults)
        if selection.cpu and not selection.gpu:
            need = replace(need, gpus=())
        print_fitting(images, need, checkout, as_json=as_json)
        return
    try:
        images = select(checkout, selection.without_defaults)
    except InputError as error:
        raise InputError(f"{error}{_gpu_hint(selection)}") from None
    result = []
    for image in images:
        facts = image.as_json()
        facts["driver"] = image.cuda and image.cuda.driver
        facts["budget"] = image.budget
        facts["published"] = asdict(planned_tags(image))
        result.append(facts)
    lines = _lines(images, wide=wide)
    print_result(result, lines, as_json=as_json)


def _gpu_hint(selection: Selection) -> str:
    """Return the option for a word that is the model of a GPU; empty if no word is."""
    from imgbuild.catalog.choice import find_gpu

    for name in selection.names:
        with suppress(InputError):
            find_gpu(name, None)
            return f" A GPU is given by its own option: --gpu-model '{name}'."
    return ""


def _lines(images: "tuple[Image, ...]", *, wide: bool) -> list[str]:
    """Return the table of images, with one paragraph per TensorFlow release."""
    columns = ["python", "mpi", "horovod"]
    if any(image.variant == "gpu" for image in images):
        columns.append("cuda")
    ordered = sorted(images, key=lambda image: [int(n) for n in image.tensorflow.split(".")])
    rows = [("image", *columns, "platforms", *(_WIDE if wide else ()))]
    for image in ordered:
        cells = [image.keys.get(column, "-") for column in columns]
        machines = " ".join(name.removeprefix("linux/") for name in image.platforms)
        rows.append((image.name, *cells, machines, *(_wide_cells(image) if wide else ())))
    head, *table = align_rows(rows)
    lines = [head]
    for image, line in zip(ordered, table, strict=True):
        title = f"TensorFlow {image.tensorflow}, TensorBoard {image.version_of('tensorboard')}"
        if title not in lines:
            lines += ["", title]
        lines.append(line)
    return lines


def _wide_cells(image: "Image") -> tuple[str, ...]:
    driver = image.cuda.driver if image.cuda else "-"
    budget = f"{image.budget / 1e6:.0f}" if image.budget else "-"
    tags = " ".join(image.tags)
    return driver, budget, tags
