"""The states of images that builds, suites and pushes report."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from imgbuild.core.outcome import Outcome


class Phase(StrEnum):
    """The work that is in progress on an image, or that the image waits for."""

    WAITING = "waiting"
    BUILDING = "building"
    BUILT = "built"
    TESTING = "testing"
    CHECKING = "checking"
    PUSHING = "pushing"


@dataclass(frozen=True)
class ImageState:
    """The state of an image: the work in progress, or its outcome.

    If ``quiet``, only terminals show the text, for example the progress of a build.
    """

    image: str
    state: Phase | Outcome
    text: str = ""
    quiet: bool = False


#: Receives every event; any thread may call it.
Listener = Callable[[ImageState], None]
