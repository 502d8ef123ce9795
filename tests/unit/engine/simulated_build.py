"""A build as the events it would have: steps that wait for others and share two processors."""

from dataclasses import dataclass, field

from imgbuild.engine.display import BuildDisplay
from imgbuild.engine.progress import BakeBegun, BuildEvent, StepPlanned, Transfer

TICK = 0.5
PROCESSORS = 2


@dataclass
class Work:
    """One step: seconds of work, what it waits for, whom it is for."""

    text: str
    work: float
    after: tuple[str, ...]
    images: list[str] = field(default_factory=list)
    done: float = 0.0
    since: float | None = None
    until: float | None = None


def family(count: int, factor: float = 1.0) -> dict[str, Work]:
    """Return the steps of images that share a system, and two by two their packages."""
    steps: dict[str, Work] = {}

    def step(key: str, image: str, work: float, *after: str, name: str = "") -> None:
        made = steps.setdefault(key, Work(name or key, work * factor, after))
        made.images.append(image)

    for number in range(count):
        image = f"tf-{number}"
        pair = number // 2
        step("os", image, 20, name="[os 1/1] RUN apt-install")
        step("mpi", image, 8, "os", name="[mpi 1/1] RUN apt-install mpi")
        step(f"packages{pair}", image, 15 + pair, "os", name=f"[packages 1/1] RUN uv {pair}")
        after = (f"packages{pair}", "mpi")
        step(f"horovod{number}", image, 30 + 3 * number, *after, name=f"[horovod 2/2] RUN {number}")
        step(f"final{number}", image, 1, f"horovod{number}", name="[final 1/1] COPY /out /")
        step(f"export{number}", image, 4, f"final{number}", name="exporting to image")
    return steps


@dataclass
class Simulation:
    """Plays a family to a display; ``now`` is its clock."""

    steps: dict[str, Work]
    display: BuildDisplay | None = None
    now: float = 1000.0
    suites: float = 12.0
    testing: dict[str, float] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)

    def clock(self) -> float:
        return self.now

    def begin(self, display: BuildDisplay) -> None:
        self.display = display
        display.expect(dict.fromkeys(self.images, "build"))
        display.event(BakeBegun(tuple(self.images)))
        numbers = {key: number for number, key in enumerate(self.steps)}
        for key, step in self.steps.items():
            after = tuple(numbers[one] for one in step.after)
            for image in step.images if not step.text.startswith("exporting") else ():
                display.event(StepPlanned(image, step.text, numbers[key], after))

    @property
    def images(self) -> list[str]:
        return [*dict.fromkeys(image for step in self.steps.values() for image in step.images)]

    @property
    def over(self) -> bool:
        return len(self.named) == len(self.images)

    def tick(self) -> None:
        """Let some time pass: everything that can run does, and gets its share."""
        running = [(n, s) for n, s in enumerate(self.steps.values()) if self._runs(n, s)]
        self.now += TICK
        share = TICK * min(1.0, PROCESSORS / max(1, len(running) + len(self.testing)))
        for number, step in running:
            step.done += share
            if step.images and "packages" in step.text:
                moved = int(step.done * 10**7)
                self._display.event(Transfer(tuple(step.images), number, "x", moved, 2 * 10**8))
            if step.done >= step.work:
                step.until = self.now
                self._tell(number, step, "done")
        self._test(share)

    @property
    def _display(self) -> BuildDisplay:
        assert self.display
        return self.display

    def _test(self, share: float) -> None:
        for image in [*self.testing]:
            self.testing[image] += share
            self._display.step(image, f"horovod {self.testing[image]:.0f}/12")
            if self.testing[image] >= self.suites:
                del self.testing[image]
                self._display.note(image, "passed", ended=True)
                self._display.finished(image, "named")
                self.named.add(image)
        built = {i for s in self.steps.values() if s.until and "export" in s.text for i in s.images}
        for image in self.images:
            if image in built - self.named and not self.testing:
                self.testing[image] = 0.0
                self._display.note(image, "testing", "contents, horovod")

    def _runs(self, number: int, step: Work) -> bool:
        ready = all(self.steps[key].until is not None for key in step.after)
        if step.until is not None or not ready:
            return False
        if step.since is None:
            step.since = self.now
            self._tell(number, step, "running")
        return True

    def _tell(self, number: int, step: Work, state: str) -> None:
        elapsed = self.now - (step.since or 0.0) if state == "done" else 0.0
        for image in step.images:
            self._display.event(BuildEvent(image, step.text, state, elapsed, number))  # type: ignore[arg-type]
