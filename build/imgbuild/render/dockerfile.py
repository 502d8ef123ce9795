"""The arrow Image → Dockerfile. Pure: the same image and templates give the same text."""

import calendar
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from imgbuild.errors import InputError
from imgbuild.matrix.image import Image, minor_of
from imgbuild.render.labels import pin_labels

#: Where the interpreter and the packages live in every image.
PREFIX = "/opt/python"

#: Open MPI refuses root unless both are set, and its shared-memory transport prints
#: "Read -1, expected" where the container may not use process_vm_readv. As ENV, since
#: `docker exec` and Kubernetes bypass an entry point. Source: Open MPI FAQ, "running as root";
#: open-mpi/ompi issue 4948.
MPI_ENVIRONMENT: Mapping[str, tuple[tuple[str, str], ...]] = {
    "openmpi": (
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
    ),
}


def render_dockerfile(image: Image, templates: Path) -> str:
    """Return the image's Dockerfile.

    Raises:
        InputError: a template is missing or wrong (``file:line``), or the image needs one that
            does not exist yet.

    """
    try:
        text = _environment(templates).get_template("Dockerfile.j2").render(_variables(image))
    except TemplateError as error:
        where = f"{getattr(error, 'name', None) or 'template'}:{getattr(error, 'lineno', '?')}"
        raise InputError(f"images/templates/{where}: {error} (for {image.name}).") from error
    return text.rstrip("\n") + "\n"


def epoch_seconds(image: Image) -> int:
    """Return the matrix's epoch in seconds, the SOURCE_DATE_EPOCH of every build."""
    return calendar.timegm(time.strptime(image.matrix.epoch, "%Y-%m-%dT%H:%M:%SZ"))


@cache
def _environment(templates: Path) -> Environment:
    return Environment(  # noqa: S701 - Dockerfiles are not HTML; values.py keeps them safe
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )


def _variables(image: Image) -> dict[str, object]:
    python = image.python
    minor = minor_of(image.version_of("python"))
    return {
        "image": image,
        "epoch": epoch_seconds(image),
        "prefix": PREFIX,
        "python_minor": minor,
        "site_packages": f"{PREFIX}/lib/python{minor}/site-packages",
        "python_source": image.source(python.source) if python.origin == "source" else None,
        "os_packages": _os_packages(image),
        "compiler_packages": sorted({*image.os.packages.compiler, *_mpi_packages(image, "build")}),
        "cpython_packages": sorted({*image.os.packages.compiler, *image.os.packages.cpython}),
        "gcc_4_abi": image.wheel.compiler.split(".")[0] == "4",
        "mpi_environment": MPI_ENVIRONMENT[image.mpi.flavour],
        "labels": tuple(pin_labels(image).items()),
    }


def _os_packages(image: Image) -> list[str]:
    """Return the run-time packages; git by its pinned version, whatever the archive's revision."""
    git = f"git=1:{image.version_of('git')}-*"
    return sorted({*image.os.packages.runtime, *_mpi_packages(image, "runtime"), git})


def _mpi_packages(image: Image, use: str) -> tuple[str, ...]:
    mpi = image.mpi
    if mpi.origin != "apt":
        raise InputError(f"{image.name}: there is no template for an MPI from {mpi.origin!r} yet.")
    return mpi.runtime if use == "runtime" else mpi.build
