"""Select images of the matrix by version, variant, stack and MPI, or by name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
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
    """
    from imgbuild.matrix.images import all_images, as_documented, whole_family  # noqa: PLC0415

    if selection.names:
        if selection != Selection(names=selection.names):
            raise InputError(
                "--name cannot be combined with --tf, --cpu, --gpu, --stack, --mpi, --all or "
                "--as-documented."
            )
        return _named(whole_family(matrix), selection.names)
    images = all_images(matrix)
    _check_options(images, selection)
    images = _matching(images, matrix, selection)
    every = not selection.everything
    return as_documented(images, each=every) if selection.as_documented else images


def _check_options(images: tuple["Image", ...], selection: Selection) -> None:
    if selection.tensorflow and selection.everything:
        raise InputError("--all means every version; give --tf or --all, not both.")
    if not selection.tensorflow and not selection.everything:
        raise InputError(f"Select images with --tf VERSION or --all. {_existing(images)}")
    for version in selection.tensorflow:
        if not re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]+)?", version):
            raise InputError(f"--tf {version!r} is not a version such as 2.2. {_existing(images)}")
        if not any(version in {image.minor, image.tensorflow} for image in images):
            what = f"--tf {version}: no such TensorFlow in the matrix."
            raise InputError(f"{what} {_existing(images)}")
    known = sorted({image.mpi.flavour for image in images})
    if selection.mpi is not None and selection.mpi not in known:
        raise InputError(f"--mpi {selection.mpi!r}: no such MPI; there are: {', '.join(known)}.")


def _matching(
    images: tuple["Image", ...], matrix: "Matrix", selection: Selection
) -> tuple["Image", ...]:
    """Return the images; each version and each variant that is named must have one."""
    everything, mpi = selection.everything, selection.mpi
    default: set[str] = {"cpu", "gpu"} if everything else {matrix.defaults.variant}
    variants = [{name} for name in ("cpu", "gpu") if getattr(selection, name)] or [default]
    stacks = {*matrix.stacks} if everything else {matrix.defaults.stack}
    stacks = {selection.stack} if selection.stack else stacks
    names: set[str] = set()
    for version, group in product(selection.tensorflow or (None,), variants):
        found = [
            image.name
            for image in images
            if version in {None, image.minor, image.tensorflow}
            and image.variant in group
            and image.stack in stacks
            and (image.mpi.flavour == mpi if mpi else everything or image.usual_mpi)
        ]
        if not found:
            raise InputError(
                f"No image is TensorFlow {version or 'of any version'}, "
                f"{' or '.join(sorted(group))}, on the stack {' or '.join(sorted(stacks))}"
                f"{f' with {mpi}' if mpi else ''}. {_existing(images)}"
            )
        names.update(found)
    return tuple(image for image in images if image.name in names)


def _existing(images: tuple["Image", ...]) -> str:
    groups: dict[str, list[str]] = {}
    for image in images:
        mpi = "" if image.usual_mpi else f" {image.mpi.flavour}"
        groups.setdefault(f"{image.stack} {image.variant}{mpi}", []).append(image.minor)
    lines = [f"{', '.join(minors)} ({group})" for group, minors in groups.items()]
    return "There are: " + "; ".join(lines) + "."


def _named(images: tuple["Image", ...], names: Sequence[str]) -> tuple["Image", ...]:
    known = [image.name for image in images]
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown:
        import difflib  # noqa: PLC0415 - for the error alone

        raise InputError(
            " ".join(
                f"--name {name!r}: no such image in the matrix. Most similar: "
                f"{', '.join(difflib.get_close_matches(name, known, n=_NEAR, cutoff=0.0))}; "
                "`imgbuild list` has them all."
                for name in unknown
            )
        )
    return tuple(image for image in images if image.name in names)
