"""Write the events of a build as plain lines for logs, or as objects of the JSON log.

`BuildDisplay` passes them on; `BuildStatus` has counted them by then. The list of images at the end
of `imgbuild build` is another output, of `imgbuild.cli.build_command`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TextIO

from imgbuild.engine.progress import BuildEvent, ImageState, is_internal

if TYPE_CHECKING:
    from imgbuild.build.status import BuildStatus, ImageStatus
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
        changed = self._states.get(image.image) != image.state
        self._states[image.image] = image.state
        if not isinstance(event, BuildEvent):
            if changed or (alone and event.text) or event.text.startswith("FAILED"):
                self._line(image.image, event.state, event.text, now)
        elif is_internal(event.step) and event.state != "failed":
            return
        elif alone:
            ended = clock_time(event.elapsed) if event.state == "done" else event.state
            self._step(image.image, "starts" if event.state == "running" else ended, event, now)
        else:
            if event.state == "done" and event.elapsed >= LONG_SECONDS:
                self._step(self._status.sharers(event)[0], clock_time(event.elapsed), event, now)
            if changed and image.state in _STATES:
                text = shortened(event.step) if image.state == "failed" else ""
                if image.state == "built":
                    text = f"in {clock_time(image.build_seconds or 0)}"
                self._line(image.image, image.state, text, now)

    def beat(self, now: float) -> None:
        """Sum up all images, if no line was written for a while."""
        if now - self._latest >= QUIET_SECONDS:
            self._latest = now
            print(standing(self._status, now), file=self._stream, flush=True)

    def _step(self, image: str, column: str, event: BuildEvent, now: float) -> None:
        """Write a step once; a shared one with the first of its images."""
        if (image, event.step, event.state) not in self._written:
            self._written.add((image, event.step, event.state))
            others = len(self._status.sharers(event)) - 1
            more = f" (and for {others} more)" if others > 0 else ""
            self._line(image, column, shortened(event.step) + more, now)

    def _line(self, image: str, column: str, text: str, now: float) -> None:
        self._latest = now
        width = max(len(name) for name in self._status.images)
        line = f"{image:<{width}}  {column:>10}  {text}".rstrip()
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
        said = isinstance(event, ImageState) and (event.text or event.error)
        if isinstance(event, BuildEvent) and (
            not is_internal(event.step) or event.state == "failed"
        ):
            self._step(event, image)
        if said or self._states.get(image.image, "waiting") != image.state:
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

    def _step(self, event: BuildEvent, image: ImageStatus) -> None:
        stage = _STAGE.match(event.step)
        moved = sum(one.current for one in image.moved.values() if one.number == event.number)
        self._log.emit(
            "step",
            image=image.image,
            step=event.step,
            stage=stage[1] if stage else None,
            state=event.state,
            seconds=None if event.state == "running" else round(event.elapsed, 3),
            bytes=moved or None,
            error=event.error or None,
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
            bytes=image.bytes or None,
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
        seconds = clock_time(now - step.since)
        parts.append(f"longest: {shortened(step.text, 40)} of {image.image} {seconds}")
    return ", ".join([*parts, clock_time(status.elapsed(now))])


def shortened(step: str, width: int = STEP_WIDTH) -> str:
    """Return a step for people: ``[horovod 3/4] RUN make …`` as ``horovod 3/4 RUN make …``.

    Options and here-documents are left out: they say how a step runs, not what it does.
    """
    bare = step.replace("[", "", 1).replace("]", "", 1) if step.startswith("[") else step
    bare = _HERE_DOCUMENT.sub("", _OPTIONS.sub(r"\1", bare))
    return bare if len(bare) <= width else bare[: width - 1] + "…"


def clock_time(seconds: float) -> str:
    """Return a duration for people: ``12.3s``, ``4m05s``, ``1h02m``."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"
