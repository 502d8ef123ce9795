"""Select images of the matrix by version, variant, stack and MPI, or by name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from imgbuild.errors import InputError

if TYPE_CHECKING:  # the command line reads `Selection` without what validates a matrix
    from imgbuild.matrix.images import Image
    from imgbuild.matrix.model import Matrix

#: So many similar names are listed where a name does not exist.
_NEAR = 3


@dataclass(frozen=True)
class Selection:
    """The selection options. ``everything`` ignores the defaults but not the other options.

    ``names`` are exact names and exclude every other option.
    """

    tensorflow: tuple[str, ...] = ()
    cpu: bool = False
    gpu: bool = False
    stack: str | None = None
    mpi: str | None = None
    everything: bool = False
    as_documented: bool = False
    names: tuple[str, ...] = ()

    @property
    def or_everything(self) -> "Selection":
        """The same; the whole matrix where neither a version nor an image is named."""
        return replace(self, everything=self.everything or not (self.tensorflow or self.names))


def select_images(matrix: "Matrix", selection: Selection) -> tuple["Image", ...]:
    """Return the selected images in the order of the matrix.

    As documented, a version that is named must differ from the family's; of everything, images
    that do not differ are left out.

    Raises:
        InputError: nothing is selected, or a part of the selection matches nothing; what exists
            is listed.

    """
    from imgbuild.matrix.images import as_documented  # noqa: PLC0415 - see above

    if selection.names:
        if selection != Selection(names=selection.names):
            raise InputError(
                "--name cannot be combined with --tf, --cpu, --gpu, --stack, --mpi, --all or "
                "--as-documented."
            )
        return _named(matrix, selection.names)
    images = _matching(matrix, selection)
    every = not selection.everything
    return as_documented(images, each=every) if selection.as_documented else images


def _matching(matrix: "Matrix", selection: Selection) -> tuple["Image", ...]:
    from imgbuild.matrix.images import all_images  # noqa: PLC0415

    images = all_images(matrix)
    if selection.tensorflow and selection.everything:
        raise InputError("--all means every version; give --tf or --all, not both.")
    if not selection.tensorflow and not selection.everything:
        raise InputError(f"Select images with --tf VERSION or --all. {_existing(images)}")
    for version in selection.tensorflow:
        _check_version(version, images)
    known = sorted({image.mpi.flavour for image in images})
    if selection.mpi is not None and selection.mpi not in known:
        raise InputError(f"--mpi {selection.mpi!r}: no such MPI; there are: {', '.join(known)}.")
    # Not one of several versions or variants may silently be left out.
    parts = [selection]
    parts += [replace(selection, tensorflow=(version,)) for version in selection.tensorflow]
    if selection.cpu and selection.gpu:
        parts += [replace(selection, gpu=False), replace(selection, cpu=False)]
    for part in parts:
        if not any(_matches(image, part, matrix) for image in images):
            raise InputError(f"No image is {_describe(part, matrix)}. {_existing(images)}")
    return tuple(image for image in images if _matches(image, selection, matrix))


def _check_version(version: str, images: tuple["Image", ...]) -> None:
    if not re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]+)?", version):
        raise InputError(f"--tf {version!r} is not a version such as 2.2. {_existing(images)}")
    if not any(version in {image.minor, image.tensorflow} for image in images):
        raise InputError(f"--tf {version}: no such TensorFlow in the matrix. {_existing(images)}")


def _matches(image: "Image", selection: Selection, matrix: "Matrix") -> bool:
    if selection.tensorflow and not {image.minor, image.tensorflow} & {*selection.tensorflow}:
        return False
    if image.variant not in _variants(selection, matrix):
        return False
    if image.stack not in _stacks(selection, matrix):
        return False
    if selection.mpi:
        return selection.mpi == image.mpi.flavour
    return selection.everything or image.usual_mpi


def _variants(selection: Selection, matrix: "Matrix") -> set[str]:
    named = {name for name in ("cpu", "gpu") if getattr(selection, name)}
    if named:
        return named
    return {"cpu", "gpu"} if selection.everything else {matrix.defaults.variant}


def _stacks(selection: Selection, matrix: "Matrix") -> set[str]:
    if selection.stack:
        return {selection.stack}
    return {*matrix.stacks} if selection.everything else {matrix.defaults.stack}


def _describe(selection: Selection, matrix: "Matrix") -> str:
    versions = " or ".join(selection.tensorflow) or "of any version"
    variants = " or ".join(sorted(_variants(selection, matrix)))
    stacks = " or ".join(sorted(_stacks(selection, matrix)))
    mpi = f" with {selection.mpi}" if selection.mpi else ""
    return f"TensorFlow {versions}, {variants}, on the stack {stacks}{mpi}"


def _existing(images: tuple["Image", ...]) -> str:
    groups: dict[str, list[str]] = {}
    for image in images:
        mpi = "" if image.usual_mpi else f" {image.mpi.flavour}"
        groups.setdefault(f"{image.stack} {image.variant}{mpi}", []).append(image.minor)
    lines = [f"{', '.join(minors)} ({group})" for group, minors in groups.items()]
    return "There are: " + "; ".join(lines) + "."


def _named(matrix: "Matrix", names: Sequence[str]) -> tuple["Image", ...]:
    """Return the images with these names, each once."""
    from imgbuild.matrix.images import whole_family  # noqa: PLC0415

    images = whole_family(matrix)
    known = [image.name for image in images]
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown:
        import difflib  # noqa: PLC0415 - for the error alone

        near = [difflib.get_close_matches(name, known, n=_NEAR, cutoff=0.0) for name in unknown]
        raise InputError(
            " ".join(
                f"--name {name!r}: no such image in the matrix. Most similar: "
                f"{', '.join(similar)}; `imgbuild list` has them all."
                for name, similar in zip(unknown, near, strict=True)
            )
        )
    return tuple(image for image in images if image.name in names)
