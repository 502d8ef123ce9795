"""Compute the status of each image of a build from its events."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from imgbuild.engine import progress
from imgbuild.engine.failure import works
from imgbuild.events import Event, ImageNote, ImagesPlanned, ImageState, State


@dataclass
class Step:
    """One step; ``state`` is ``planned`` before it begins, ``since`` when it got its state."""

    text: str
    state: str = "planned"
    since: float = 0.0

    @property
    def is_finished(self) -> bool:
        return self.state in {"done", "cached"}


@dataclass
class ImageStatus:
    """One image. ``text`` is the latest note; ``action`` is what the plan has for it.

    Its clock runs from its first step that was not cached (``since``) to ``until``.
    ``moved`` are the bytes of each part of a step, by the step's number and the part's name.
    ``builder`` is who builds it, unless that is the engine.
    """

    image: str
    action: str = "build"
    state: State = State.WAITING
    text: str = ""
    since: float | None = None
    until: float | None = None
    steps: dict[int, Step] = field(default_factory=dict)
    moved: dict[tuple[int, str], int] = field(default_factory=dict)
    builder: str | None = None

    def apply(self, step: Step, event: progress.BuildEvent, now: float) -> None:
        step.state, step.since = event.state, now
        if works(event):
            started = now - event.elapsed
            self.since = started if self.since is None else min(self.since, started)
        if self.state is State.FAILED:
            return
        if progress.is_export(event.step) and event.state in {"running", "done"}:
            # What has not begun by now is not needed: it lies below something cached.
            self.steps = {n: step for n, step in self.steps.items() if step.state != "planned"}
            self.state = State.BUILT if event.state == "done" else State.EXPORTING
        elif event.state == "failed":
            self.state = State.FAILED
        # BuildKit also cancels a step that another target has as well, and does it for both.
        elif event.state != "cancelled" and self.state not in {State.EXPORTING, State.BUILT}:
            self.state = State.BUILDING
        self.text = event.step if event.state == "failed" else ""
        self.until = now if self.state is State.BUILT or self.state.final else None

    def set_state(self, state: State, text: str, now: float) -> None:
        """Take in what is done outside a bake, or how the image ended."""
        if self.final and state == self.state:
            return
        if not (self.final and state.final):  # a tag that is set later takes no time
            self.until = now if state.final else None
        self.state, self.text = state, text
        self.since = now if self.since is None else self.since
        if self.final:
            self.steps = {number: step for number, step in self.steps.items() if step.is_finished}

    @property
    def final(self) -> bool:
        return self.state.final

    @property
    def running(self) -> Step | None:
        """The step that runs for longest; BuildKit runs several side by side."""
        steps = (step for step in self.steps.values() if step.state == "running")
        return min(steps, key=lambda step: step.since, default=None)

    @property
    def step(self) -> str:
        """What a line shows: the latest note, the oldest running step, or the one just ended."""
        if self.text or self.state is State.BUILT or self.final:
            return self.text
        active = (step for step in self.steps.values() if step.state != "planned")
        shown = self.running or max(active, key=lambda step: step.since, default=None)
        return shown.text if shown else ""

    def elapsed(self, now: float) -> float | None:
        """Return how long the image has been, or was, worked on; ``None`` before it began."""
        if self.since is None:
            return None
        return max(0.0, (now if self.until is None else self.until) - self.since)


class BuildStatus:
    """All images, in the order they were given; ``started`` is a time of the display's clock."""

    def __init__(self, images: Sequence[str], started: float = 0.0) -> None:
        self.images = {image: ImageStatus(image) for image in images}
        self.started = started

    def apply(self, event: Event, now: float) -> ImageStatus | None:
        """Take in an event; return the image whose step or state changed.

        BuildKit's own steps count only if they fail.
        """
        match event:
            case ImagesPlanned():
                for name, action in event.actions.items():
                    self.images[name].action = action
            case progress.BakeBegun():
                # Steps get new numbers, and what was done comes from the cache.
                for one in self._known(event.targets):
                    self.images[one.image] = ImageStatus(
                        one.image, one.action, since=one.since, builder=event.builder
                    )
            case progress.Transfer():
                for one in self._known(event.targets):
                    one.moved[event.number, event.name] = event.current
            case ImageNote():
                self.images[event.image].text = event.text
            case ImageState():
                self.images[event.image].set_state(event.state, event.text, now)
                return self.images[event.image]
            case progress.BuildEvent():
                return self._take_step(event, now)
        return None

    def _known(self, targets: Iterable[str]) -> list[ImageStatus]:
        """Return the images among targets: a wheel's export and a shared stage are none."""
        return [self.images[name] for name in targets if name in self.images]

    def _take_step(self, event: progress.BuildEvent, now: float) -> ImageStatus | None:
        image = self.images.get(event.target or "")
        if image is None or (progress.is_internal(event.step) and event.state != "failed"):
            return None
        step = image.steps.setdefault(event.number, Step(event.step))
        if event.state == "planned":
            return None
        image.apply(step, event, now)
        return image

    @property
    def with_work(self) -> list[ImageStatus]:
        return [one for one in self.images.values() if one.action != "nothing"]

    @property
    def done(self) -> int:
        return sum(one.final for one in self.with_work)

    @property
    def fraction(self) -> float:
        """How much is done, from 0 to 1; what follows an image's steps counts as one more."""
        done, steps = self.steps
        return (done + self.done) / (steps + len(self.with_work)) if self.with_work else 1.0

    @property
    def steps(self) -> tuple[int, int]:
        """How many steps are done, and how many are known; a shared one counts once."""
        every = {
            (one.builder, number, step.text): step
            for one in self.with_work
            for number, step in one.steps.items()
        }
        return sum(step.is_finished for step in every.values()), len(every)

    def sharers(self, event: progress.BuildEvent, builder: str | None) -> int:
        """Return how many images that the builder builds have the step."""
        its = (one for one in self.images.values() if one.builder == builder)
        steps = (one.steps.get(event.number) for one in its)
        return sum(step is not None and step.text == event.step for step in steps)

    def longest(self) -> tuple[ImageStatus, Step] | None:
        """Return the step that has run for longest, and an image it is for."""
        found = [(one, step) for one in self.images.values() if (step := one.running)]
        return min(found, key=lambda pair: pair[1].since, default=None)

    def counts(self) -> Counter[State]:
        return Counter(one.state for one in self.images.values())
