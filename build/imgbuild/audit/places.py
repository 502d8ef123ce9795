"""Where in matrix.yaml a value of an image is written."""

from imgbuild.matrix.image import Image
from imgbuild.yaml_document import Location


def row_place(image: Image) -> Location:
    """Return the location of the image's row."""
    return ("images", image.matrix.images.index(image.row))


def pin_place(image: Image, component: str) -> Location:
    """Return where a pin of the image is written: its row, else its stack, else its system."""
    row = row_place(image)
    if getattr(image.matrix.images[int(row[1])], component, None) is not None:
        return (*row, component)
    if getattr(image.matrix.stacks[image.stack].pins, component, None) is not None:
        return ("stacks", image.stack, "pins", component)
    return ("operating_systems", image.os_name, "pins", component)


def release_place(image: Image, *keys: str) -> Location:
    """Return a location in what the matrix says of the image's TensorFlow release."""
    return ("tensorflow", image.tensorflow, *keys)
