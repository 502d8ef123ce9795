"""What happens in a build: the values that both progress formats are read into."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

State = Literal["running", "cached", "done", "failed", "cancelled"]


@dataclass(frozen=True)
class BuildEvent:
    """A step of a target changed its state. ``elapsed`` is in seconds, 0 while it runs.

    ``target`` is an image name, or ``None`` for a step of bake itself. A step that several targets
    share has one number, and one event for each of them where the format tells (rawjson).
    """

    target: str | None
    step: str
    state: State
    elapsed: float = 0.0
    number: int = 0
    error: str = ""

    @property
    def internal(self) -> bool:
        """Whether the step is BuildKit's own housekeeping."""
        return is_internal(self.step)


@dataclass(frozen=True)
class BakeBegun:
    """A bake of these images begins: step numbers start anew, what was done before is cached."""

    targets: tuple[str, ...]


@dataclass(frozen=True)
class StepPlanned:
    """A step of a target that has not begun: known as soon as BuildKit has read the Dockerfile.

    ``after`` are the numbers of the steps that it waits for.
    """

    target: str | None
    step: str
    number: int
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Transfer:
    """How far a step is with moving bytes: a context, a layer that is pulled or exported.

    ``total`` is 0 where BuildKit does not know it.
    """

    targets: tuple[str, ...]
    number: int
    name: str
    current: int
    total: int = 0


@dataclass(frozen=True)
class StepOutput:
    """One line that a step wrote. ``targets`` are all that are known to share the step."""

    targets: tuple[str, ...]
    step: str
    text: str
    number: int = 0


@dataclass(frozen=True)
class Remark:
    """A line outside any step: buildx's own words, such as the final ``ERROR: …``."""

    text: str


#: What a display wants to hear.
Event = BakeBegun | BuildEvent | StepPlanned | Transfer
Item = Event | StepOutput | Remark


def is_internal(step: str) -> bool:
    """Return whether a step is BuildKit's own housekeeping, of no interest while all goes well."""
    if " LINK COPY " in step or " LINK ADD " in step:  # joins what COPY --link made
        return True
    return step.startswith(("[internal]", "[context ", "resolving ", "[auth]"))


def is_export(step: str) -> bool:
    """Return whether a step writes the finished image: the last of every target."""
    return step.startswith("exporting to ")


class ProgressParser(Protocol):
    """Reads a progress stream line by line. It has a memory, but no clock and no files."""

    def feed(self, line: str) -> list[Item]:
        """Return what one line tells; a line that is not understood is a `Remark`."""


def bake_name(image: str) -> str:
    """Return an image name as bake allows it: ``tf-2.2-cpu`` is ``tf-2_2-cpu``.

    Bake takes only ``[a-zA-Z0-9_-]``; image names have no underscore, so no two names meet.
    """
    return image.replace(".", "_")


def split_name(name: str, targets: Sequence[str]) -> tuple[str | None, str]:
    """Return the image and the bare step of a vertex name.

    With several targets, bake writes ``[TARGET STAGE 3/4] RUN …`` and ``[TARGET] exporting …``;
    with a single one it leaves the target out.
    """
    step = " ".join(name.split())
    if len(targets) == 1:
        return targets[0], step
    found = re.fullmatch(r"\[([^\] ]+) ?([^\]]*)\] (.*)", step)
    image = {bake_name(target): target for target in targets}.get(found[1]) if found else None
    if found is None or image is None:
        return None, step
    return image, f"[{found[2]}] {found[3]}" if found[2] else found[3]


def is_cancelled(error: str) -> bool:
    """Return whether a step only ended because another one failed or the build was stopped."""
    return error.rstrip().endswith("context canceled")
