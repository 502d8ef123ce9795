"""Images by their exact names, as ``--name`` has them: what a list of a program is handed on by."""

from collections.abc import Sequence

from imgbuild.errors import InputError
from imgbuild.matrix.documented import documented_family
from imgbuild.matrix.image import Image, all_images
from imgbuild.matrix.model import Matrix

#: So many names are told that are like one that does not exist.
_NEAR = 3


def whole_family(matrix: Matrix) -> tuple[Image, ...]:
    """Return every image that has a name: the family, then the images as documented."""
    return (*all_images(matrix), *documented_family(matrix))


def named_images(matrix: Matrix, names: Sequence[str]) -> tuple[Image, ...]:
    """Return the images with these names, each once, in the order of the matrix.

    Raises:
        InputError: a name is none of the matrix; those that are most like it are listed.

    """
    images = whole_family(matrix)
    known = [image.name for image in images]
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown:
        raise InputError(" ".join(_no_such(name, known) for name in unknown))
    return tuple(image for image in images if image.name in names)


def _no_such(name: str, known: Sequence[str]) -> str:
    import difflib  # noqa: PLC0415 - for the error alone

    near = difflib.get_close_matches(name, known, n=_NEAR, cutoff=0.0)
    return (
        f"--name {name!r}: no such image in the matrix. Most like it: {', '.join(near)}; "
        "`imgbuild list` has them all."
    )
