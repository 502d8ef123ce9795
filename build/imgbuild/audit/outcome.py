"""What an audit found, ready to be printed."""

from dataclasses import dataclass
from typing import Literal

from imgbuild.audit.facts import Contradiction, SdistFacts, WheelFacts
from imgbuild.audit.other_inputs import InputState

WheelState = Literal["read", "cached", "evidence", "missing", "unread"]
SdistState = Literal["offered", "verified", "evidence", "missing", "unread"]


@dataclass(frozen=True)
class WheelOutcome:
    """One wheel: how its facts came, what that took, and why there are none if so."""

    distribution: str
    version: str
    state: WheelState
    facts: WheelFacts | None = None
    bytes_read: int = 0
    seconds: float = 0.0
    problem: str = ""


@dataclass(frozen=True)
class SdistOutcome:
    """One source distribution of Horovod."""

    version: str
    state: SdistState
    facts: SdistFacts | None = None
    bytes_read: int = 0
    seconds: float = 0.0
    problem: str = ""


@dataclass(frozen=True)
class LocksOutcome:
    """How much of the locks was compared with the index."""

    locks: int = 0
    projects: int = 0
    hashes: int = 0


@dataclass(frozen=True)
class Outcome:
    """Everything. ``unread`` has a paragraph for each thing that could not be looked at."""

    wheels: tuple[WheelOutcome, ...]
    sdists: tuple[SdistOutcome, ...]
    locks: LocksOutcome
    inputs: tuple[InputState, ...]
    contradictions: tuple[Contradiction, ...]
    unread: tuple[str, ...]
    bytes_read: int
    seconds: float
