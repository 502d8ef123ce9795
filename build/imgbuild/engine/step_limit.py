"""Limit the run time of build steps."""

from dataclasses import dataclass, field

from imgbuild.engine.progress import BuildEvent, Item, StepOutput
from imgbuild.text import duration_text

#: Far longer than any step of the matrix takes on a slow machine: compiling takes minutes.
STEP_SECONDS = 3600.0
#: How often a waiting reader looks at the clock, in seconds, while steps run.
LOOK_SECONDS = 1.0
#: What a step writes every 10 s while it waits for another to compile, and when its turn has come.
#: Source: images/files/compiling.sh.
WAITS = "imgbuild: waits for a place to compile"
GOES_ON = "imgbuild: has a place to compile"

#: Since when a step runs, and what was said of it, by target.
_Run = tuple[float, dict[str | None, BuildEvent]]


@dataclass
class StepLimit:
    """Knows which steps run, and since when. ``seconds`` is the limit; 0 is none.

    What a step waits for a place to compile does not count: the steps that have the places may be
    the ones that hang. A build in which no step runs, or all of them wait, has the same time to say
    something: buildx or the engine can hang between steps too.
    """

    seconds: float
    now: float
    _running: dict[int, _Run] = field(default_factory=dict)
    _waiting: set[int] = field(default_factory=set)

    def take(self, item: Item, now: float) -> None:
        """Take in what the build said."""
        self.now = now
        if isinstance(item, StepOutput) and item.number in self._running:
            if item.text.strip() == WAITS:
                self._waiting.add(item.number)
            elif item.text.strip() == GOES_ON:
                self._waiting.discard(item.number)
                self._running[item.number] = now, self._running[item.number][1]
        elif isinstance(item, BuildEvent) and item.state == "running":
            since, targets = self._running.get(item.number, (now, {}))
            self._running[item.number] = since, {**targets, item.target: item}
        elif isinstance(item, BuildEvent):
            self._running.pop(item.number, None)
            self._waiting.discard(item.number)

    def wait(self, now: float) -> float | None:
        """Return how long a reader may sleep before it has to look again; ``None`` is for ever."""
        return max(0.01, min(LOOK_SECONDS, self._first() - now)) if self.seconds else None

    def exceeded(self, now: float) -> list[BuildEvent]:
        """Return a failure for each target of the steps that ran too long, none if all is well.

        Without any running step, the failure of a build that has said nothing for so long is bake's
        own.
        """
        if not self.seconds or now < self._first():
            return []
        limit = duration_text(self.seconds)
        end = f"for more than {limit} (--step-timeout {limit})"
        return [
            BuildEvent(event.target, event.step, "failed", now - since, number, f"ran {end}")
            for number, (since, targets) in self._counted()
            if now - since >= self.seconds
            for event in targets.values()
        ] or [
            BuildEvent(None, "", "failed", now - self.now, error=f"the engine said nothing {end}")
        ]

    def _first(self) -> float:
        """Return when the first limit is reached."""
        since = min((since for _, (since, _) in self._counted()), default=self.now)
        return since + self.seconds

    def _counted(self) -> list[tuple[int, _Run]]:
        """Return the steps whose time runs, by number."""
        return [one for one in self._running.items() if one[0] not in self._waiting]
