"""The states of images, which a build, suites or a push report as they change."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The work on an image that is under way, or its outcome."""

    WAITING = "waiting"
    BUILDING = "building"
    BUILT = "built"
    TESTING = "testing"
    CHECKING = "checking"
    PUSHING = "pushing"
    TAGGED = "tagged"
    UP_TO_DATE = "up to date"
    PUBLISHED = "published"
    PASSED = "passed"
    INCOMPLETE = "incomplete"
    SKIPPED = "skipped"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self not in _MOVING


_MOVING = {
    State.WAITING,
    State.BUILDING,
    State.BUILT,
    State.TESTING,
    State.CHECKING,
    State.PUSHING,
}


@dataclass(frozen=True)
class ImageState:
    """The state of an image: the work that is under way, or how it ended.

    ``quiet``: only a terminal shows the text, such as how far the work has come.
    """

    image: str
    state: State
    text: str = ""
    quiet: bool = False


#: Gets every event, from whichever thread.
Listener = Callable[[ImageState], None]
