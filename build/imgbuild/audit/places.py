"""Where in matrix.yaml a value of an image is written."""

from imgbuild.matrix.images import Image
from imgbuild.matrix.pins import pin_location
from imgbuild.yaml_file import Location


def row_place(image: Image) -> Location:
    """Return the location of the image's row."""
    return ("images", image.matrix.images.index(image.row))


def pin_place(image: Image, component: str) -> Location:
    """Return where a pin of the image is written: its row, else its stack, else its system."""
    return pin_location(image.matrix, image.row, component)


def release_place(image: Image, *keys: str) -> Location:
    """Return a location in what the matrix says of the image's TensorFlow release."""
    return ("tensorflow", image.tensorflow, *keys)
