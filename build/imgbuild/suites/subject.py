"""What is tested: an image, and what is expected of it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from imgbuild.matrix.model import Variant

#: Writes the stub of the driver's library, as ``libcuda.so.1``, into an empty folder.
Export = Callable[[Path], None]
#: The first TensorFlow whose import does without the driver. Read out of the wheels' DT_NEEDED.
WITHOUT_DRIVER = Version("1.14")


@dataclass(frozen=True)
class Subject:
    """One image under test. ``expected`` is what the suites read with ``--expect``.

    ``name`` is the image's in reports: that in the matrix, or the reference by which an image from
    elsewhere was given. ``reference`` is how it was found. ``not_given`` are facts that nobody told
    of an image from elsewhere. ``export`` makes the driver's stub, for an image built here.
    """

    name: str
    image_id: str
    reference: str
    variant: Variant
    expected: Mapping[str, Any]
    not_given: tuple[str, ...] = ()
    export: Export | None = None

    @property
    def folder(self) -> str:
        """The name as that of a folder."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.name)

    @property
    def needs_driver(self) -> bool:
        """Whether its TensorFlow can be imported only where there is a driver."""
        return self.variant == "gpu" and Version(self.expected["tensorflow"]) < WITHOUT_DRIVER
