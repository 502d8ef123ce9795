"""How long the steps of a build may run: one that hangs would keep the whole build for ever."""

from dataclasses import dataclass, field

from imgbuild.duration import duration_text
from imgbuild.engine.progress import BuildEvent, Item

#: Far longer than any step of the matrix takes on a slow machine: compiling takes minutes.
STEP_SECONDS = 3600.0
#: How often a waiting reader looks at the clock, in seconds, while steps run.
LOOK_SECONDS = 1.0


@dataclass
class StepLimit:
    """Knows which steps run, and since when. ``seconds`` is the limit; 0 is none.

    A build in which no step runs has the same time to say something: buildx or the engine can hang
    between steps too.
    """

    seconds: float
    now: float
    _running: dict[int, tuple[float, dict[str | None, BuildEvent]]] = field(default_factory=dict)

    def heard(self, item: Item, now: float) -> None:
        """Take in what the build said."""
        self.now = now
        if not isinstance(item, BuildEvent):
            return
        if item.state == "running":
            since, targets = self._running.get(item.number, (now, {}))
            self._running[item.number] = since, {**targets, item.target: item}
        else:
            self._running.pop(item.number, None)

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
        late = [one for one in self._running.items() if now - one[1][0] >= self.seconds]
        return [
            BuildEvent(event.target, event.step, "failed", now - since, number, self._ran())
            for number, (since, targets) in late
            for event in targets.values()
        ] or [BuildEvent(None, "", "failed", now - self.now, error=self._silent())]

    def _first(self) -> float:
        """Return when the first limit is reached."""
        since = min((since for since, _ in self._running.values()), default=self.now)
        return since + self.seconds

    def _ran(self) -> str:
        limit = duration_text(self.seconds)
        return f"ran for more than {limit} (--step-timeout {limit})"

    def _silent(self) -> str:
        limit = duration_text(self.seconds)
        return f"the engine said nothing for more than {limit} (--step-timeout {limit})"
