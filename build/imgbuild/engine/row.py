"""One image while it is built and tested: its state, its steps, its bytes, its time. Pure."""

from dataclasses import dataclass, field
from typing import Literal

from imgbuild.engine.progress import (
    BuildEvent,
    State,
    StepPlanned,
    Transfer,
    is_export,
    is_internal,
)

#: The states in which nothing more is done for an image.
FINAL = frozenset({"named", "failed", "cancelled", "up to date", "passed", "skipped", "published"})
#: What a row shows for its latest event.
_WORDS = {"failed": "failed", "cancelled": "cancelled"}
#: A base image that is there is found in less, in seconds; pulling one is work.
_FOUND_SECONDS = 1.0


@dataclass
class Step:
    """One step: ``since`` and ``until`` are the clock's, ``None`` while it has not begun, ended."""

    text: str
    number: int
    state: State | Literal["planned"] = "planned"
    since: float | None = None
    until: float | None = None

    @property
    def ended(self) -> bool:
        """Whether it is done, or was before."""
        return self.state in {"done", "cached"}

    @property
    def work_since(self) -> float | None:
        """When it began to work: never, if it came from the cache."""
        if self.since is None or self.state in {"planned", "cached"}:
            return None
        took = (self.until or self.since) - self.since
        return None if "] FROM " in self.text and took < _FOUND_SECONDS else self.since


@dataclass
class Row:
    """One image. ``text`` is what a note said; while steps run, `step` is the oldest of them.

    ``to_do`` is what the plan has for it: ``build``, ``test``, ``name``, ``push`` or ``nothing``.
    """

    image: str
    to_do: str = "build"
    state: str = "waiting"
    text: str = ""
    since: float | None = None
    until: float | None = None
    built_at: float | None = None
    steps: dict[int, Step] = field(default_factory=dict)
    moved: dict[tuple[int, str], Transfer] = field(default_factory=dict)
    planned: bool = False
    #: The numbers of the steps that each one waits for, housekeeping included.
    after: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _most: float = 0.0

    def begin_bake(self) -> None:
        """Forget the steps: they get new numbers, and what was done comes from the cache."""
        self.steps, self.moved, self.after, self.planned = {}, {}, {}, False
        self.state, self.text, self.until = "waiting", "", None

    def plan(self, event: StepPlanned) -> None:
        """Count a step that has not begun."""
        self.after[event.number] = event.after
        if not is_internal(event.step):
            self.planned = True
            self.steps.setdefault(event.number, Step(event.step, event.number))

    def take(self, event: BuildEvent, now: float) -> None:
        """Take in that a step began or ended. Housekeeping counts only if it fails."""
        if event.internal and event.state != "failed":
            return
        step = self.steps.setdefault(event.number, Step(event.step, event.number))
        step.state = event.state
        if event.state == "running":
            step.since, step.until = now, None
        else:
            step.since = now - event.elapsed if step.since is None else step.since
            step.until = now
        self._keep_time(step)
        if self.state != "failed":
            self._change(event, now)

    def _keep_time(self, step: Step) -> None:
        if (begun := step.work_since) is not None:
            self.since = begun if self.since is None else min(self.since, begun)

    def _change(self, event: BuildEvent, now: float) -> None:
        if is_export(event.step) and event.state in {"running", "done"}:
            # What has not begun by now is not needed: it lies below something cached.
            self.steps = {n: step for n, step in self.steps.items() if step.state != "planned"}
            self.state = "built" if event.state == "done" else "exporting"
            self.built_at = now if event.state == "done" else None
        elif self.state not in {"exporting", "built"} or event.state in _WORDS:
            self.state = _WORDS.get(event.state, "building")
        self.text = event.step if event.state == "failed" else ""
        self.until = now if self.state in {"built", *FINAL} else None

    def note(self, state: str, text: str, now: float, *, ended: bool) -> None:
        """Take in what is done outside a build, or how the image ended: its clock stands then."""
        if ended and not self.final:  # a name that is given later takes no time
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

    def waits_for(self, number: int) -> set[int]:
        """Return the steps that have to end before one begins, seen through housekeeping."""
        found, ahead = set(), [*self.after.get(number, ())]
        for other in ahead:  # grows meanwhile; BuildKit's graph has no loops
            step = self.steps.get(other)
            if step is None:
                ahead.extend(self.after.get(other, ()))
            elif not step.ended:
                found.add(other)
        return found

    @property
    def step(self) -> str:
        """What the row shows: the latest note, the step one waits for, or the one just ended."""
        if self.text or self.state in {"built", *FINAL}:
            return self.text
        if running := self.running:
            return running[0].text
        latest = max(self.steps.values(), key=lambda step: step.until or 0.0, default=None)
        return latest.text if latest and latest.state != "planned" else ""

    @property
    def fraction(self) -> float | None:
        """How much of the build's steps is done, from 0 to 1; it never falls.

        ``None`` where the steps to come are not known. 1 only when the image is there.
        """
        if self.to_do == "push":
            return None
        if self.built_at is not None or (self.to_do != "build" and self.state != "waiting"):
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
        """Return for how long the image has been, or was, at work; ``None`` before it began."""
        if self.since is None:
            return None
        return max(0.0, (now if self.until is None else self.until) - self.since)
