"""Who is to blame where an image could not be built: it alone, or this machine."""

from enum import StrEnum

from imgbuild.engine.failure import BuildStoppedError
from imgbuild.engine.faults import EngineUnusableError
from imgbuild.errors import ImgbuildError, MachineError


class Blame(StrEnum):
    """What a failure says of the other images.

    ``MACHINE`` is what this machine lacks for the image, such as an upstream that cannot be
    reached: others may not need it. ``ALL`` is what every image needs: the engine, and its disk.
    """

    IMAGE = "image"
    MACHINE = "machine"
    ALL = "all"


def blame_of(error: ImgbuildError) -> Blame:
    """Return who is to blame for an error that ended the work on one image."""
    if isinstance(error, EngineUnusableError):
        return Blame.ALL
    if isinstance(error, BuildStoppedError):
        diagnosis = error.failure.diagnosis
        return Blame.ALL if diagnosis and diagnosis.of_all else Blame.MACHINE
    return Blame.MACHINE if isinstance(error, MachineError) else Blame.IMAGE
