"""The images as they were documented: chosen knowingly, beside the family of the matrix."""

from collections.abc import Iterable
from dataclasses import dataclass

from imgbuild.errors import InputError
from imgbuild.matrix.image import Image, all_images, as_documented_image, resolve_image
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.pins import ResolvedPin


@dataclass(frozen=True)
class Correction:
    """One pin of which the documentation says another version than the family has."""

    documented: ResolvedPin
    corrected: ResolvedPin


def documented_family(matrix: Matrix) -> tuple[Image, ...]:
    """Return every image as documented that is not the family's own, in the matrix's order."""
    images = map(as_documented_image, all_images(matrix))
    return tuple(image for image in images if image.documented)


def as_documented(images: Iterable[Image], *, each: bool) -> tuple[Image, ...]:
    """Return the images with the documented pins; without ``each``, those that differ only.

    Raises:
        InputError: an image that must differ does not, or none of them does.

    """
    others = [as_documented_image(image) for image in images]
    same = [image for image in others if not image.documented]
    if each and same:
        raise InputError(f"{same[0].name} is as documented already: {_why_same(same[0])}.")
    found = tuple(image for image in others if image.documented)
    if not found:
        raise InputError("All of the selected images are as documented already.")
    return found


def corrections(image: Image) -> tuple[Correction, ...]:
    """Return the pins in which an image as documented differs from the family's."""
    family = {
        pin.component: pin for pin in resolve_image(image.matrix, image.row, image.variant).pins
    }
    pairs = ((pin, family.get(pin.component, pin)) for pin in image.pins)
    return tuple(Correction(own, other) for own, other in pairs if own.version != other.version)


def never_published(image: Image) -> tuple[ResolvedPin, ...]:
    """Return the pins whose documented version does not exist: the corrected one stays."""
    return tuple(pin for pin in image.pins if pin.documented and not pin.documented_exists)


def _why_same(image: Image) -> str:
    kept = [
        f"{pin.component} {pin.documented} was documented and cannot be had ({pin.why})"
        for pin in never_published(image)
    ]
    return "; ".join(kept) or "the documentation names no other version for any of its pins"
