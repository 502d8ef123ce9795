"""Where in matrix.yaml a value of an image is written."""

from imgbuild.matrix.image import Image, find_row
from imgbuild.yaml_document import Location


def row_place(image: Image) -> Location:
    """Return the location of the image's row."""
    row = find_row(image.matrix, image.tensorflow, image.stack)
    return ("images", image.matrix.images.index(row))


def pin_place(image: Image, component: str) -> Location:
    """Return where a pin of the image is written: its row, its operating system or its stack."""
    row = row_place(image)
    if getattr(image.matrix.images[int(row[1])], component, None) is not None:
        return (*row, component)
    os_pins = getattr(image.os, "pins", None)
    if getattr(os_pins, component, None) is not None:
        return ("operating_systems", image.os_name, "pins", component)
    return ("stacks", image.stack, "pins", component)


def release_place(image: Image, *keys: str) -> Location:
    """Return a location in what the matrix says of the image's TensorFlow release."""
    return ("tensorflow", image.tensorflow, *keys)
