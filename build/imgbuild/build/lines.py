"""Write the events of a build as plain lines for logs, or as objects of the JSON log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TextIO

from imgbuild.engine.progress import BuildEvent

if TYPE_CHECKING:
    from imgbuild.build.status import BuildStatus, ImageStatus
    from imgbuild.engine.progress import ImageState
    from imgbuild.json_log import JsonLog

#: Of many images, only steps that took longer get a line, in seconds.
LONG_SECONDS = 10.0
#: After so many seconds without a line, one sums up all images.
QUIET_SECONDS = 60.0
#: How often the JSON log has an object about all images, in seconds.
PROGRESS_SECONDS = 15.0
STEP_WIDTH = 72
_STATES = {"building", "built", "failed", "cancelled"}
_OPTIONS = re.compile(r"\b(RUN|COPY|ADD)(?:\s+--\S+)+")
_HERE_DOCUMENT = re.compile(r"\s*<<'?\w+'?(?: \(.*\))?$")
_STAGE = re.compile(r"\[(\S+)(?: \d+/\d+)?\] ")


class PlainLines:
    """Writes each step of a single image, and the states of many; no line twice."""

    def __init__(self, status: BuildStatus, stream: TextIO, now: float) -> None:
        self._status = status
        self._stream = stream
        self._latest = now
        self._written: set[tuple[str, ...]] = set()
        self._states: dict[str, str] = {}

    def write(self, event: BuildEvent | ImageState, image: ImageStatus, now: float) -> None:
        """Write an event, if it is worth a line."""
        alone = len(self._status.busy) == 1
        if not isinstance(event, BuildEvent):
            changed = self._states.get(image.image) != event.state
            if changed or (alone and event.text) or event.text.startswith("FAILED"):
                self._state(image, event.text, now)
        elif event.internal and event.state != "failed":
            return
        elif alone:
            self._states[image.image] = image.state
            self._once(image.image, _column(event), shortened(event.step), now, event.state)
        else:
            if event.state == "done" and event.elapsed >= LONG_SECONDS:
                self._long(event, now)
            if image.state in _STATES and self._states.get(image.image) != image.state:
                self._state(image, self._of_step(event, image), now)

    def beat(self, now: float) -> None:
        """Sum up all images, if no line was written for a while."""
        if now - self._latest >= QUIET_SECONDS:
            self._latest = now
            self._print(standing(self._status, now))

    def _of_step(self, event: BuildEvent, image: ImageStatus) -> str:
        if image.state == "built" and image.build_seconds is not None:
            return f"in {clock_time(image.build_seconds)}"
        if image.state == "built":
            return "from the cache"
        return shortened(event.step) if image.state == "failed" else ""

    def _long(self, event: BuildEvent, now: float) -> None:
        """Write a long step once, with one of the images that share it."""
        image, *others = self._status.sharers(event)
        more = f" (and for {len(others)} more)" if others else ""
        self._once(image, clock_time(event.elapsed), shortened(event.step) + more, now, "done")

    def _once(self, image: str, column: str, text: str, now: float, state: str) -> None:
        if (image, text, state) not in self._written:
            self._written.add((image, text, state))
            self._line(image, column, text, now)

    def _state(self, image: ImageStatus, text: str, now: float) -> None:
        self._states[image.image] = image.state
        self._line(image.image, image.state, text, now)

    def _line(self, image: str, column: str, text: str, now: float) -> None:
        self._latest = now
        width = max(len(name) for name in self._status.images)
        self._print(f"{image:<{width}}  {column:>10}  {text}".rstrip())

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class JsonLines:
    """Writes an object for each step that begins or ends, each new state, and all together."""

    def __init__(self, status: BuildStatus, log: JsonLog, now: float) -> None:
        self._status = status
        self._log = log
        self._latest = now
        self._states: dict[str, str] = {}

    def write(self, event: BuildEvent | ImageState, image: ImageStatus, now: float) -> None:
        """Write an event; a step that images share is written for each of them."""
        text = "" if isinstance(event, BuildEvent) else event.text or event.error
        if isinstance(event, BuildEvent) and (not event.internal or event.state == "failed"):
            moved = sum(one.current for one in image.moved.values() if one.number == event.number)
            self._log.emit(
                "step",
                image=image.image,
                step=event.step,
                stage=stage_of(event.step) or None,
                state=event.state,
                seconds=None if event.state == "running" else round(event.elapsed, 3),
                bytes=moved or None,
                error=event.error or None,
            )
        if text or self._states.get(image.image, "waiting") != image.state:
            self._image(image, now, event.error or None)

    def beat(self, now: float) -> None:
        """Write an object about all images, if one is due."""
        if now - self._latest < PROGRESS_SECONDS:
            return
        self._latest = now
        counts = self._status.counts()
        self._log.emit(
            "progress",
            done=self._status.done,
            images=len(self._status.busy),
            building=counts["building"] + counts["exporting"],
            testing=counts["testing"],
            percent=round(self._status.fraction * 100, 1),
            seconds=round(self._status.elapsed(now), 1),
        )

    def summary(self, now: float) -> None:
        """Write how the build ended."""
        counts = self._status.counts()
        self._log.emit(
            "summary",
            images=len(self._status.images),
            named=counts["named"],
            up_to_date=counts["up to date"],
            failed=counts["failed"],
            seconds=round(self._status.elapsed(now), 1),
        )

    def _image(self, image: ImageStatus, now: float, error: str | None) -> None:
        self._states[image.image] = image.state
        elapsed = image.build_seconds if image.state == "built" else image.elapsed(now)
        self._log.emit(
            "image",
            image=image.image,
            state=image.state,
            text=image.text or None,
            seconds=None if elapsed is None else round(elapsed, 1),
            bytes=sum(one.current for one in image.moved.values()) or None,
            error=error,
        )


def standing(status: BuildStatus, now: float) -> str:
    """Return ``12 of 34 done, 3 building, longest: horovod 2/2 RUN make of tf-2.2-cpu 1m40s``."""
    counts = status.counts()
    done, steps = status.steps
    parts = [f"{status.done} of {len(status.busy)} done"]
    for state in ("building", "exporting", "testing", "waiting", "failed"):
        parts += [f"{counts[state]} {state}"] if counts[state] else []
    parts += [f"{done} of {steps} steps"] if steps else []
    if longest := status.longest():
        image, step = longest
        seconds = clock_time(now - (now if step.since is None else step.since))
        parts.append(f"longest: {shortened(step.text, 40)} of {image.image} {seconds}")
    return ", ".join([*parts, clock_time(status.elapsed(now))])


def shortened(step: str, width: int = STEP_WIDTH) -> str:
    """Return a step for people: ``[horovod 3/4] RUN make …`` as ``horovod 3/4 RUN make …``.

    Options and here-documents are left out: they say how a step runs, not what it does.
    """
    bare = step.replace("[", "", 1).replace("]", "", 1) if step.startswith("[") else step
    bare = _HERE_DOCUMENT.sub("", _OPTIONS.sub(r"\1", bare))
    return bare if len(bare) <= width else bare[: width - 1] + "…"


def stage_of(step: str) -> str:
    """Return the Dockerfile stage of a step, such as ``horovod``; "" for BuildKit's own steps."""
    found = _STAGE.match(step)
    return found[1] if found else ""


def clock_time(seconds: float) -> str:
    """Return a duration for people: ``12.3s``, ``4m05s``, ``1h02m``."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def _column(event: BuildEvent) -> str:
    """Return how long a step took, or how it ended."""
    if event.state == "done":
        return clock_time(event.elapsed)
    return "starts" if event.state == "running" else event.state
