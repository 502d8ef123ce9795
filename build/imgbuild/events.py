"""The events of images: what is done for each, by a build, by suites, or by a push."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """What is being done for an image, or how it ended."""

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
class ImagesPlanned:
    """What will be done for each image: ``build``, ``test``, ``tag``, ``push`` or ``nothing``."""

    actions: Mapping[str, str]


@dataclass(frozen=True)
class ImageState:
    """The state of an image: the work that is under way, or how it ended."""

    image: str
    state: State
    text: str = ""


@dataclass(frozen=True)
class ImageNote:
    """How far an image has come within its state; only a terminal shows it."""

    image: str
    text: str


Event = ImagesPlanned | ImageState | ImageNote
#: Gets every event, from whichever thread.
Listener = Callable[[Event], None]
