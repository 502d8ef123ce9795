"""Select images of the matrix by version, variant, stack and MPI, or by name."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from imgbuild.core.errors import InputError
from imgbuild.matrix.known_names import parse_known_name

if TYPE_CHECKING:  # `Selection` must not import the validation, which is slow
    from imgbuild.matrix.images import Image
    from imgbuild.matrix.model import Matrix

#: Limit for the similar versions or names in an error.
_NEAR = 3
#: The error for a name beside other options.
NAMES_ALONE = (
    "An image's name cannot be combined with --tf, --cpu, --gpu, --stack, --mpi or --all. Give "
    "either the name or the options. To find images for a GPU, use `imgbuild list --gpu-model "
    "A100`."
)
#: The word that selects the newest version that has an image with the other options.
LATEST = "latest"
#: A version, with or without a variant.
_SHORT = re.compile(rf"(\d+\.\d+(?:\.\d+)?|{LATEST})(?:-(cpu|gpu))?")


@dataclass(frozen=True)
class Selection:
    """The selection options.

    ``everything`` selects all images that fit the other options, without defaults. ``names`` select
    single images (`find_image`) and cannot be combined with other options.
    """

    tensorflow: tuple[str, ...] = ()
    cpu: bool = False
    gpu: bool = False
    stack: str | None = None
    mpi: str | None = None
    everything: bool = False
    names: tuple[str, ...] = ()

    @property
    def named(self) -> bool:
        """Whether versions, names or all are selected; if not, the default version applies."""
        return bool(self.tensorflow or self.names or self.everything)

    @property
    def or_everything(self) -> "Selection":
        """The same selection, but all images that fit if it has no versions and no names."""
        return self if self.named else self.without_defaults

    @property
    def without_defaults(self) -> "Selection":
        """The same selection without defaults: all images that fit it."""
        return replace(self, everything=not self.names)


def select_images(matrix: "Matrix", selection: Selection) -> tuple["Image", ...]:
    """Return the selected images in the order of the matrix.

    InputError: an option has an unknown value, or no image fits.
    """
    from imgbuild.matrix.images import all_images, with_other_architectures  # noqa: PLC0415

    images = all_images(matrix)
    if selection.names:
        if selection != Selection(names=selection.names):
            raise InputError(NAMES_ALONE)
        named = [find_image(matrix, name) for name in dict.fromkeys(selection.names)]
        names = {image.name for image in named}
        return tuple(image for image in with_other_architectures(images) if image.name in names)
    _check_options(images, matrix, selection)
    return _match_images(images, matrix, selection)


def _check_options(images: tuple["Image", ...], matrix: "Matrix", selection: Selection) -> None:
    if not selection.named and matrix.defaults.tensorflow is None:
        raise InputError("Select images with --tf VERSION or --all; `imgbuild list` shows all.")
    releases = [image.tensorflow for image in images]
    versions = {LATEST, *releases, *(image.minor for image in images)}
    for version in selection.tensorflow:
        if version not in versions:
            nearest = ", ".join(_nearest(version, releases))
            message = f"--tf {version!r}: no such TensorFlow in the matrix"
            raise InputError(f"{message}. Nearest: {nearest}; `imgbuild list` shows all.")
    flavours = sorted({image.mpi.flavour for image in images})
    stack_option = (selection.stack, "--stack", [*matrix.stacks])
    mpi_option = (selection.mpi, "--mpi", flavours)
    for value, option, known in (stack_option, mpi_option):
        if value is not None and value not in known:
            raise InputError(f"{option} {value!r} is not in the matrix; use {' or '.join(known)}.")


def _nearest(version: str, known: Sequence[str]) -> list[str]:
    """Return the releases that are nearest to a version; for 3.0, the newest releases of 2."""
    wanted = _position(version)
    releases = sorted(dict.fromkeys(known), key=lambda known: abs(_position(known) - wanted))
    return releases[:_NEAR]


def _position(version: str) -> int:
    """Return a number for comparison: major * 1,000,000 + minor * 1,000 + patch."""
    numbers = [int(number) for number in re.findall(r"\d{1,9}", version)]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    return (major * 1000 + minor) * 1000 + patch


def _match_images(
    images: tuple["Image", ...], matrix: "Matrix", selection: Selection
) -> tuple["Image", ...]:
    """Return the images that fit; InputError if a selected version or variant has none."""
    named = selection.named
    versions = selection.tensorflow or (None if named else matrix.defaults.tensorflow,)
    variants: Sequence[str | None] = ["cpu"] * selection.cpu + ["gpu"] * selection.gpu
    names: set[str] = set()
    for version, variant in product(versions, variants or [None]):
        of_version = []
        fitting = []
        for image in images:
            if version not in {None, LATEST, image.minor, image.tensorflow}:
                continue
            of_version.append(image)
            has_options = _has_options(image, selection)
            if has_options and variant in {None, image.variant}:
                fitting.append(image)
        if not fitting:
            raise _no_image_error(selection, version, variant, of_version)
        if version == LATEST:
            fitting = newest_images(fitting)
        if not selection.everything:
            fitting = [default_image(fitting)]
        names.update(image.name for image in fitting)
    return tuple(image for image in images if image.name in names)


def _has_options(image: "Image", selection: Selection) -> bool:
    """Return whether an image has the selected stack and MPI."""
    has_stack = selection.stack in {None, image.stack}
    return has_stack and selection.mpi in {None, image.mpi.flavour}


def newest_images(images: Sequence["Image"]) -> list["Image"]:
    """Return the images of the newest minor version of TensorFlow."""
    newest = max(images, key=lambda image: [int(number) for number in image.minor.split(".")])
    return [image for image in images if image.minor == newest.minor]


def default_image(images: list["Image"]) -> "Image":
    """Return the image that the defaults select; skip a default that no image fits."""
    defaults = images[0].matrix.defaults
    conditions: tuple[Callable[[Image], bool], ...] = (
        lambda image: image.variant == defaults.variant,
        lambda image: image.stack == defaults.stack,
        lambda image: image.usual_mpi,
    )
    for fits in conditions:
        images = [image for image in images if fits(image)] or images
    if len(images) > 1:
        names = ", ".join(image.name for image in images)
        raise InputError(
            f"Several images fit: {names}. Choose one with --stack, --mpi or its name."
        )
    return images[0]


def _no_image_error(
    selection: Selection, version: str | None, variant: str | None, images: list["Image"]
) -> InputError:
    """Return the error, which lists the available images of the version.

    Without a version, it lists the available variants and stacks.
    """
    pairs = (("", variant), ("stack ", selection.stack), ("mpi ", selection.mpi))
    options = " ".join(f"--{option}{value}" for option, value in pairs if value)
    message = f"No image of TensorFlow {version}"
    kinds = [image.name for image in images]
    if version in {None, LATEST}:
        message = "No image"
        kinds = [name.split("-", 2)[2] for name in kinds]
    listed = ", ".join(dict.fromkeys(kinds))
    return InputError(f"{message} fits {options}. Available: {listed}.")


def find_image(matrix: "Matrix", text: str) -> "Image":
    """Return the image with a name, tag or alias; ``2.2-gpu`` is short for ``--tf 2.2 --gpu``.

    Names and tags of images for arm64 end with ``-arm64``.

    The name of another publisher's image selects the image with the same TensorFlow and variant.

    InputError: there is none. The most similar names are listed.
    """
    from imgbuild.matrix.images import all_images, with_other_architectures  # noqa: PLC0415

    family = all_images(matrix)
    for image in with_other_architectures(family):
        short = (tag.rpartition(":")[2] for tag in image.tags)
        if text in {image.name, *image.tags, *short}:
            return image
        if normalize_alias(text) in map(normalize_alias, image.aliases):
            return image
    short_form = _SHORT.fullmatch(text)
    known = parse_known_name(text)
    version, variant = short_form.groups() if short_form else known or ("", None)
    minors = {LATEST, *(image.minor for image in family)}
    if short_form or version in minors:
        selection = Selection((version,), cpu=variant == "cpu", gpu=variant == "gpu")
        return select_images(matrix, selection)[0]
    import difflib  # noqa: PLC0415 - only for the error

    names: dict[str, str] = {}
    for image in family:
        names |= {name.lower(): name for name in (image.name, *image.aliases)}
    nearest = [names[name] for name in difflib.get_close_matches(text.lower(), names, _NEAR, 0.0)]
    if known:  # the version has no image: list an image of the nearest version first
        images = [image for image in family if variant in {None, image.variant}]
        minor = _nearest(version, [image.minor for image in images])[0]
        default = default_image([image for image in images if image.minor == minor])
        others = [name for name in nearest if name != default.name]
        nearest = [default.name, *others]
    raise InputError(
        f"{text!r}: no such image in the matrix. Most similar: {', '.join(nearest)}; "
        "`imgbuild list` shows all."
    )


def normalize_alias(alias: str) -> str:
    """Return an alias for comparison: in lower case, with hyphens for blanks and underscores."""
    return re.sub(r"[\s_-]+", "-", alias.strip().lower())


def build_hint(image: "Image | None") -> str:
    """Return how to build a missing image; empty if the image is not in the matrix."""
    if image is None:
        return ""
    name = image.name
    if image.architecture != "amd64":
        name = f"{name.removesuffix(f'-{image.architecture}')} --platform {image.platform}"
    return f"Build it first: imgbuild build {name}"
