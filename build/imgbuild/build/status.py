"""Compute the status of each image of a build from its events."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from imgbuild.engine.failure import FOUND_SECONDS
from imgbuild.engine.progress import (
    FINAL,
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


@dataclass
class Step:
    """One step: ``since`` and ``until`` are the clock's, ``None`` before it begins and ends."""

    text: str
    number: int
    state: State | Literal["planned"] = "planned"
    since: float | None = None
    until: float | None = None

    @property
    def ended(self) -> bool:
        """Whether it is done, or came from the cache."""
        return self.state in {"done", "cached"}

    @property
    def work_since(self) -> float | None:
        """When it began to work: never, if it came from the cache."""
        if self.since is None or self.state in {"planned", "cached"}:
            return None
        took = (self.until or self.since) - self.since
        return None if "] FROM " in self.text and took < FOUND_SECONDS else self.since


@dataclass
class ImageStatus:
    """One image. ``text`` is the latest note; ``action`` is what the plan has for it.

    The clock of an image runs from ``since`` to ``until``.
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
    planned: bool = False
    _most: float = 0.0

    def begin_bake(self) -> None:
        """Forget the steps: they get new numbers, and what was done comes from the cache."""
        self.steps, self.moved, self.planned = {}, {}, False
        self.state, self.text, self.until = "waiting", "", None

    def plan(self, event: StepPlanned) -> None:
        """Count a step that has not begun."""
        if not is_internal(event.step):
            self.planned = True
            self.steps.setdefault(event.number, Step(event.step, event.number))

    def take(self, event: BuildEvent, now: float) -> None:
        """Take in that a step began or ended. BuildKit's own steps count only if they fail."""
        if event.internal and event.state != "failed":
            return
        step = self.steps.setdefault(event.number, Step(event.step, event.number))
        step.state = event.state
        if event.state == "running":
            step.since, step.until = now, None
        else:
            step.since = now - event.elapsed if step.since is None else step.since
            step.until = now
        if (begun := step.work_since) is not None:
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
        self.until = now if self.state in {"built", *FINAL} else None

    def set_state(self, state: str, text: str, now: float) -> None:
        """Take in what is done outside a bake, or how the image ended."""
        ended = state in FINAL
        if ended and not self.final:  # a tag that is set later takes no time
            self.until = now
        elif not ended:
            self.until = None
        self.state, self.text = state, text
        self.since = now if self.since is None else self.since
        if ended:
            self.steps = {number: step for number, step in self.steps.items() if step.ended}

    @property
    def final(self) -> bool:
        """Whether nothing more will be done for the image."""
        return self.state in FINAL and self.until is not None

    @property
    def running(self) -> list[Step]:
        """The steps that run now, the oldest first; BuildKit runs several side by side."""
        found = [step for step in self.steps.values() if step.state == "running"]
        return sorted(found, key=lambda step: step.since or 0.0)

    @property
    def step(self) -> str:
        """What a line shows: the latest note, the oldest running step, or the one just ended."""
        if self.text or self.state in {"built", *FINAL}:
            return self.text
        if running := self.running:
            return running[0].text
        latest = max(self.steps.values(), key=lambda step: step.until or 0.0, default=None)
        return latest.text if latest and latest.state != "planned" else ""

    @property
    def fraction(self) -> float | None:
        """How much of the build's steps is done, from 0 to 1; it never falls.

        ``None`` where the steps to come are not known. 1 only when the image is built.
        """
        if self.action == "push":
            return None
        if self.built_at is not None or (self.action != "build" and self.state != "waiting"):
            return 1.0
        if not self.planned or not self.steps:
            return self._most or None
        ended = sum(1 for step in self.steps.values() if step.ended)
        # The export is planned last: without it, everything else would seem to be all.
        total = len(self.steps) + (not any(is_export(step.text) for step in self.steps.values()))
        self._most = max(self._most, min(0.99, ended / total))
        return self._most

    @property
    def bytes(self) -> tuple[int, int]:
        """What its running steps have moved, and of how much; else what was moved in all."""
        active = {step.number for step in self.running}
        now = [one for one in self.moved.values() if one.number in active and one.total]
        if now:
            return sum(one.current for one in now), sum(one.total for one in now)
        return sum(one.current for one in self.moved.values()), 0

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


@dataclass
class BuildStatus:
    """All images, in the order they were given. ``begun`` is when the first of them began."""

    images: dict[str, ImageStatus]
    begun: float | None = None
    _most: float = 0.0

    @classmethod
    def of(cls, images: Sequence[str]) -> "BuildStatus":
        """Return a status in which every image waits."""
        return cls({image: ImageStatus(image) for image in images})

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
                for one in self._of((event.image,)):
                    one.text = event.text
            case ImageState():
                self.begun = now if self.begun is None else self.begun
                one = self._image(event.image)
                if not (one.state == event.state and one.final):
                    one.set_state(event.state, event.text, now)
                return one
            case _:
                return self._take_of_bake(event, now)
        return None

    def _take_of_bake(self, event: BakeEvent, now: float) -> ImageStatus | None:
        match event:
            case BakeBegun():
                for one in self._of(event.targets):
                    one.begin_bake()
            case StepPlanned():
                for one in self._of((event.target,)):
                    one.plan(event)
            case Transfer():
                for one in self._of(event.targets):
                    one.moved[event.number, event.name] = event
            case BuildEvent():
                for one in self._of((event.target,)):
                    self.begun = now if self.begun is None else self.begun
                    one.take(event, now)
                    return one
        return None

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
        return min(found, key=lambda one: one[1].since or 0.0, default=None)

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
        every = {(step.number, step.text): step for one in self.busy for step in one.steps.values()}
        return sum(step.ended for step in every.values()), len(every)

    @property
    def fraction(self) -> float:
        """How much of all is done, from 0 to 1; it never falls.

        An image that is built but not tested counts a little less.
        """
        shares = [1.0 if one.final else 0.9 * (one.fraction or 0.0) for one in self.busy]
        now = sum(shares) / len(shares) if shares else 1.0
        complete = self.done == len(self.busy)
        self._most = 1.0 if complete else max(self._most, min(now, 0.99))
        return self._most

    def elapsed(self, now: float) -> float:
        """Return the seconds since the first image began."""
        return 0.0 if self.begun is None else now - self.begun

    def _image(self, image: str) -> ImageStatus:
        return self.images.setdefault(image, ImageStatus(image))

    def _of(self, images: Sequence[str | None]) -> list[ImageStatus]:
        return [self.images[image] for image in images if image in self.images]
