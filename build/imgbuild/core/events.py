"""The states of images, which a build, suites or a push report as they change."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from imgbuild.core.outcome import Outcome


class Phase(StrEnum):
    """The work on an image that is under way, or that it waits for."""

    WAITING = "waiting"
    BUILDING = "building"
    BUILT = "built"
    TESTING = "testing"
    CHECKING = "checking"
    PUSHING = "pushing"


@dataclass(frozen=True)
class ImageState:
    """The state of an image: the work that is under way, or how it ended.

    ``quiet``: only a terminal shows the text, such as how far the work has come.
    """

    image: str
    state: Phase | Outcome
    text: str = ""
    quiet: bool = False


#: Gets every event, from whichever thread.
Listener = Callable[[ImageState], None]
