"""Compute the status of each image of a build from its events."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from imgbuild.engine.failure import works
from imgbuild.engine.progress import (
    BakeBegun,
    BakeEvent,
    BuildEvent,
    Event,
    ImageNote,
    ImagesPlanned,
    ImageState,
    State,
    StepPlanned,
    Transfer,
    is_export,
    is_internal,
)

#: The states after which nothing more is done for an image.
FINAL = frozenset(
    {"named", "failed", "cancelled", "up to date", "published", "passed", "incomplete", "skipped"}
)
#: How much of an image's work is its build; the rest is testing and naming it.
_BUILD_SHARE = 0.9


@dataclass
class Step:
    """One step; ``since`` and ``until`` are when it began and ended."""

    text: str
    state: State | Literal["planned"] = "planned"
    since: float = 0.0
    until: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether it is done, or came from the cache."""
        return self.state in {"done", "cached"}


@dataclass
class ImageStatus:
    """One image. ``text`` is the latest note; ``action`` is what the plan has for it.

    The clock of an image runs from its first step that was not cached (``since``) to ``until``.
    """

    image: str
    action: str = "build"
    state: str = "waiting"
    text: str = ""
    since: float | None = None
    until: float | None = None
    built_at: float | None = None
    steps: dict[int, Step] = field(default_factory=dict)
    moved: dict[tuple[int, str], Transfer] = field(default_factory=dict)

    def begin_bake(self) -> None:
        """Forget the steps: they get new numbers, and what was done comes from the cache."""
        self.steps, self.moved = {}, {}
        self.state, self.text, self.until = "waiting", "", None

    def plan(self, event: StepPlanned) -> None:
        """Count a step that has not begun."""
        if not is_internal(event.step):
            self.steps.setdefault(event.number, Step(event.step))

    def take(self, event: BuildEvent, now: float) -> None:
        """Take in that a step began or ended. BuildKit's own steps count only if they fail."""
        if is_internal(event.step) and event.state != "failed":
            return
        step = self.steps.setdefault(event.number, Step(event.step))
        step.state = event.state
        if event.state == "running":
            step.since = now
        else:
            step.until = now
        if works(event):
            begun = now - event.elapsed
            self.since = begun if self.since is None else min(self.since, begun)
        if self.state != "failed":
            self._change(event, now)

    def _change(self, event: BuildEvent, now: float) -> None:
        if is_export(event.step) and event.state in {"running", "done"}:
            # What has not begun by now is not needed: it lies below something cached.
            self.steps = {n: step for n, step in self.steps.items() if step.state != "planned"}
            self.state = "built" if event.state == "done" else "exporting"
            self.built_at = now if event.state == "done" else None
        elif event.state in {"failed", "cancelled"}:
            self.state = event.state
        elif self.state not in {"exporting", "built"}:
            self.state = "building"
        self.text = event.step if event.state == "failed" else ""
        self.until = now if self.state == "built" or self.final else None

    def set_state(self, state: str, text: str, now: float) -> None:
        """Take in what is done outside a bake, or how the image ended."""
        if state not in FINAL:
            self.until = None
        elif not self.final:  # a tag that is set later takes no time
            self.until = now
        self.state, self.text = state, text
        self.since = now if self.since is None else self.since
        if self.final:
            self.steps = {number: step for number, step in self.steps.items() if step.ended}

    @property
    def final(self) -> bool:
        """Whether nothing more will be done for the image."""
        return self.state in FINAL

    @property
    def running(self) -> list[Step]:
        """The steps that run now, the oldest first; BuildKit runs several side by side."""
        found = [step for step in self.steps.values() if step.state == "running"]
        return sorted(found, key=lambda step: step.since)

    @property
    def step(self) -> str:
        """What a line shows: the latest note, the oldest running step, or the one just ended."""
        if self.text or self.state == "built" or self.final:
            return self.text
        if running := self.running:
            return running[0].text
        begun = [step for step in self.steps.values() if step.state != "planned"]
        return max(begun, key=lambda step: step.until).text if begun else ""

    @property
    def share(self) -> float:
        """How much of the work is done, from 0 to 1."""
        if self.final:
            return 1.0
        if self.built_at is not None:
            return _BUILD_SHARE
        # The export is planned last: without it, everything else would seem to be all.
        return _BUILD_SHARE * sum(one.ended for one in self.steps.values()) / (len(self.steps) + 1)

    @property
    def bytes(self) -> int:
        """How much its steps have moved."""
        return sum(one.current for one in self.moved.values())

    @property
    def build_seconds(self) -> float | None:
        """Wall time from the first step that was not cached to the exported image."""
        if self.since is None or self.built_at is None:
            return None
        return self.built_at - self.since

    def elapsed(self, now: float) -> float | None:
        """Return how long the image has been, or was, worked on; ``None`` before it began."""
        if self.since is None:
            return None
        return max(0.0, (now if self.until is None else self.until) - self.since)


class BuildStatus:
    """All images, in the order they were given."""

    def __init__(self, images: Sequence[str]) -> None:
        self.images = {image: ImageStatus(image) for image in images}
        self._begun: float | None = None
        self._most = 0.0

    def take(self, event: Event, now: float) -> ImageStatus | None:
        """Take in an event; return the image whose step or state it is."""
        match event:
            case ImagesPlanned():
                for image, action in event.actions.items():
                    one = self._image(image)
                    one.action = action
                    if action == "nothing":
                        one.set_state("up to date", "", now)
            case ImageNote():
                self._image(event.image).text = event.text
            case ImageState():
                one = self._image(event.image)
                if not (one.final and one.state == event.state):
                    one.set_state(event.state, event.text, now)
                return self._worked_on(one, now)
            case _:
                return self._take_of_bake(event, now)
        return None

    def _take_of_bake(self, event: BakeEvent, now: float) -> ImageStatus | None:
        match event:
            case BakeBegun():
                for image in event.targets:
                    self._image(image).begin_bake()
            case Transfer():
                for image in event.targets:
                    self._image(image).moved[event.number, event.name] = event
            case StepPlanned() if event.target in self.images:
                self.images[event.target].plan(event)
            case BuildEvent() if event.target in self.images:
                self.images[event.target].take(event, now)
                return self._worked_on(self.images[event.target], now)
        return None

    def _image(self, image: str) -> ImageStatus:
        return self.images.setdefault(image, ImageStatus(image))

    def _worked_on(self, image: ImageStatus, now: float) -> ImageStatus:
        self._begun = now if self._begun is None else self._begun
        return image

    @property
    def busy(self) -> list[ImageStatus]:
        """The images that something has to be done for."""
        return [one for one in self.images.values() if one.action != "nothing"]

    def sharers(self, event: BuildEvent) -> list[str]:
        """Return the images that a step is for."""
        return [
            one.image
            for one in self.images.values()
            if (step := one.steps.get(event.number)) and step.text == event.step
        ]

    def longest(self) -> tuple[ImageStatus, Step] | None:
        """Return the step that has run for longest, and an image it is for."""
        found = [(one, one.running[0]) for one in self.images.values() if one.running]
        return min(found, key=lambda pair: pair[1].since, default=None)

    def counts(self) -> Counter[str]:
        """Return how many images are in each state."""
        return Counter(one.state for one in self.images.values())

    @property
    def done(self) -> int:
        """How many of the busy images nothing more is done for."""
        return sum(one.final for one in self.busy)

    @property
    def steps(self) -> tuple[int, int]:
        """How many steps are done, and how many are known; a shared one counts once."""
        every = {(n, step.text): step for one in self.busy for n, step in one.steps.items()}
        return sum(step.ended for step in every.values()), len(every)

    @property
    def fraction(self) -> float:
        """How much of all is done, from 0 to 1; it never falls, and is 1 only at the end."""
        if self.done == len(self.busy):
            return 1.0
        now = sum(one.share for one in self.busy) / len(self.busy)
        self._most = max(self._most, min(now, 0.99))
        return self._most

    def elapsed(self, now: float) -> float:
        """Return the seconds since the first image began."""
        return 0.0 if self._begun is None else now - self._begun
