"""What an image's tags say, part by part, and how parts become a tag. Pure."""

from collections.abc import Iterable, Mapping

from imgbuild.matrix.image import Image, minor_of
from imgbuild.matrix.tags import Part

#: The parts by name; one of which there is nothing to say is empty or missing.
Parts = Mapping[Part, str]


def parts_of(image: Image) -> dict[Part, str]:
    """Return every part but the release, as the matrix says."""
    return {
        "tensorflow": image.tensorflow,
        "minor": image.minor,
        "variant": image.variant,
        "python": python_part(image.version_of("python")),
        "cuda": cuda_part(image.version_of("cuda") if image.cuda else None),
        "mpi": f"{image.mpi.flavour}{image.mpi.version}",
        "os": f"{image.os.distribution}{image.os.version}",
        "stack": stack_part(image, image.stack),
        "flavour": "" if image.usual_mpi else image.mpi.flavour,
        "documented": documented_part(documented=image.documented),
    }


def python_part(version: str) -> str:
    """Return e.g. ``py36`` of 3.6.15."""
    return f"py{minor_of(version).replace('.', '')}"


def cuda_part(version: str | None) -> str:
    """Return e.g. ``cuda10.1``; nothing where there is no CUDA."""
    return f"cuda{version}" if version else ""


def stack_part(image: Image, stack: str) -> str:
    """Return a stack's name; nothing for the one that a selection means by itself."""
    return "" if stack == image.matrix.defaults.stack else stack


def documented_part(*, documented: bool) -> str:
    """Return what tells an image with the documented pins from the family's."""
    return "as-documented" if documented else ""


def joined(scheme: Iterable[Part], parts: Parts) -> str:
    """Return the tag that a scheme makes of the parts."""
    return "-".join(filter(None, (parts.get(part, "") for part in scheme)))
