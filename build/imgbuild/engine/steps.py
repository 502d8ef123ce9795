"""The steps of one build, read from buildx's progress.

``--progress=rawjson`` is one BuildKit ``SolveStatus`` a line, on standard error. A step (vertex) is
known by its digest. Targets of a bake file that share it each report it, under a name of their own.
"""

import base64
import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from imgbuild.core.text import duration_text

TAIL_LINES = 20
#: A base image that the engine has is found in less, in seconds; pulling one is work.
FOUND_SECONDS = 1.0
#: A step writes the first every 10 s while it waits for another to compile, and the second when
#: its turn has come.
#: Source: images/files/compiling.sh.
WAITS = "imgbuild: waits for a place to compile"
GOES_ON = "imgbuild: has a place to compile"
#: Steps that a build does without, as on a first build, for which a registry has nothing yet.
_OF_CACHE = ("importing cache manifest from ", "exporting cache to ")
#: An export's words for what it wrote, and which of them the engine will call the image by: in a
#: graph driver the configuration, in a containerd store the manifest. Another builder than the
#: engine's own asks the engine which format it loads.
_IMAGE, _MANIFEST, _CONFIG = "writing image", "exporting manifest", "exporting config"
_WRITTEN = re.compile(rf"({_IMAGE}|{_MANIFEST}|{_CONFIG}) (sha256:[0-9a-f]{{64}}) done")
_ID_OF = {
    "exporting to image": (_IMAGE, _MANIFEST),
    "exporting to docker image format": (_CONFIG,),
    "exporting to oci image format": (_MANIFEST,),
}
StepState = Literal["planned", "running", "cached", "done", "failed", "cancelled"]
Message = Mapping[str, Any]


@dataclass
class Step:
    """One step. ``elapsed`` is in seconds, 0 until it has ended.

    A planned one has not begun: it is known as soon as BuildKit has read the Dockerfile. ``since``
    is when it began to run, by a monotonic clock; None while it does not run, or waits for a place
    to compile. ``tail`` are the last lines that it wrote, ``written`` the digests that an export
    told of, by its words.
    """

    number: int
    name: str
    state: StepState = "planned"
    elapsed: float = 0.0
    error: str = ""
    since: float | None = None
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    written: dict[str, str] = field(default_factory=dict)
    #: The output after the last line end, by the number of the stream (stdout, stderr).
    pending: dict[int, bytes] = field(default_factory=dict)
    #: The parts of the step that ended, such as the layers of a pull.
    finished: set[str] = field(default_factory=set)

    @property
    def is_internal(self) -> bool:
        """Whether it is BuildKit's own housekeeping, of no interest while all goes well."""
        joins = " LINK COPY " in self.name or " LINK ADD " in self.name  # what COPY --link made
        return joins or self.name.startswith(("[internal]", "[context ", "resolving ", "[auth]"))

    @property
    def has_worked(self) -> bool:
        """Whether it did something: no cache, no base image that is there."""
        is_at_hand = "] FROM " in self.name and self.elapsed < FOUND_SECONDS
        return self.state == "done" and not self.is_internal and not is_at_hand

    @property
    def image_id(self) -> str | None:
        """The id by which the engine knows the image that this step has exported."""
        words = _ID_OF.get(self.name, ())
        return next((self.written[word] for word in words if word in self.written), None)


class BuildSteps:
    """Reads the progress of one build, line by line.

    ``show`` gets each step that begins or ends; BuildKit's own only if they fail. ``targets`` are
    the names in the bake file, which bake writes into the names of steps.
    """

    def __init__(self, targets: tuple[str, ...], show: Callable[[Step], None], now: float) -> None:
        self._of_target = re.compile(rf"\[(?:{'|'.join(map(re.escape, targets))}) ?([^\]]*)\] ")
        self._show = show
        self._heard = now
        self._steps: dict[str, Step] = {}
        self._changed: list[Step] = []
        self.remarks: deque[str] = deque(maxlen=100)

    @property
    def failed(self) -> Step | None:
        """The first step that failed."""
        return next((step for step in self._steps.values() if step.state == "failed"), None)

    @property
    def image_id(self) -> str | None:
        """The id by which the engine knows the image that was exported."""
        return next((step.image_id for step in self._steps.values() if step.image_id), None)

    @property
    def work(self) -> float:
        """The sum of the times of all steps that worked, in seconds."""
        return sum(step.elapsed for step in self._steps.values() if step.has_worked)

    def feed(self, line: str, now: float) -> list[str]:
        """Take in one line, and return the lines of the log; an unknown line is a remark."""
        self._heard = now
        try:
            lines = list(self._read(json.loads(line), now))
        except (ValueError, TypeError, KeyError, AttributeError):
            lines = self._remark(line.rstrip()) if line.strip() else []
        changed, self._changed = self._changed, []
        for step in changed:
            self._show(step)
        return lines

    def find_overdue(self, seconds: float, now: float) -> Step | None:
        """Return a step that has run for ``seconds``, as failed; 0 is no limit.

        The time that a step waits for a place to compile does not count, because the steps that
        have the places may be the ones that hang. If no step runs, or all of them wait, the build
        has the same time to say something: buildx or the engine can also hang between steps.
        """
        if not seconds:
            return None
        end = f"for more than {duration_text(seconds)} (the limit of a step)"
        running = [step for step in self._steps.values() if step.since is not None]
        for step in running:
            if step.since is not None and now - step.since >= seconds:
                step.state, step.error, step.since = "failed", f"ran {end}", None
                return step
        if running or now - self._heard < seconds:
            return None
        self._steps[""] = Step(0, "", "failed", error=f"the engine said nothing {end}")
        return self._steps[""]

    def _read(self, message: Message, now: float) -> Iterator[str]:
        vertices = [vertex for vertex in message.get("vertexes") or () if vertex["digest"]]
        for vertex in vertices:
            if vertex["digest"] not in self._steps:
                name = self._remove_target(str(vertex["name"]))
                self._steps[vertex["digest"]] = Step(len(self._steps) + 1, name)
        # Output goes first: the last lines of a step can come together with its end.
        for log in message.get("logs") or ():
            yield from self._read_output(log, now)
        for status in message.get("statuses") or ():
            step, part = self._steps[status["vertex"]], str(status["id"])
            if status.get("completed") and part not in step.finished:
                step.finished.add(part)
                yield _add_output(step, f"{part} done".encode(), now)
        for vertex in vertices:
            yield from self._read_state(self._steps[vertex["digest"]], vertex, now)
        for warning in message.get("warnings") or ():
            said = _decode(warning["short"]).decode("utf-8", "replace")
            yield from self._remark(f"warning: {said}")

    def _remove_target(self, name: str) -> str:
        """Return a step's name without the target.

        With several targets, bake writes ``[TARGET STAGE 3/4] RUN …`` and ``[TARGET] exporting …``;
        with a single one it leaves the target out.
        """
        bare = " ".join(name.split())
        if target := self._of_target.match(bare):
            stage, rest = target[1], bare[target.end() :]
            return f"[{stage}] {rest}" if stage else rest
        return bare

    def _read_output(self, message: Message, now: float) -> Iterator[str]:
        step = self._steps[message["vertex"]]
        stream = int(message.get("stream") or 0)
        data = step.pending.pop(stream, b"") + _decode(message["data"])
        *lines, step.pending[stream] = data.split(b"\n")
        for line in lines:
            yield _add_output(step, line, now)

    def _read_state(self, step: Step, vertex: Message, now: float) -> Iterator[str]:
        """Take in a step's new state, if it has one.

        A step can run again after it was done: once for its metadata, once for its content.
        """
        state, error = _read_step_state(vertex), str(vertex.get("error") or "")
        if state == "failed" and step.name.startswith(_OF_CACHE):
            yield from self._remark(f"warning: {step.name}: {error}")
            state, error = "done", ""
        if state is None or state == step.state:
            return
        if state != "running":
            for line in step.pending.values():
                if line:
                    yield _add_output(step, line, now)
            step.pending.clear()
        step.state, step.error, step.elapsed = state, error, _elapsed_seconds(vertex)
        step.since = now if state == "running" else None
        outcome = f"{state} after {step.elapsed:.1f} s{f': {error}' if error else ''}"
        yield f"#{step.number} {step.name} ({'started' if state == 'running' else outcome})"
        if state == "failed" or not step.is_internal:
            self._changed.append(step)

    def _remark(self, text: str) -> list[str]:
        self.remarks.append(text)
        return [text]


def _add_output(step: Step, line: bytes, now: float) -> str:
    """Take in a line as a terminal shows it: what a progress bar overwrote is gone."""
    text = line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2].rstrip()
    step.tail.append(text)
    if export := _WRITTEN.fullmatch(text):
        step.written[export[1]] = export[2]
    if step.state == "running" and text.strip() in {WAITS, GOES_ON}:
        step.since = now if text.strip() == GOES_ON else None
    return f"#{step.number} {text}"


def _read_step_state(vertex: Message) -> StepState | None:
    if error := vertex.get("error"):
        # So ends a step of a build that was stopped.
        return "cancelled" if error.rstrip().endswith("context canceled") else "failed"
    if vertex.get("cached"):
        return "cached"
    if vertex.get("completed"):
        return "done"
    return "running" if vertex.get("started") else None


def _elapsed_seconds(vertex: Message) -> float:
    if not (vertex.get("started") and vertex.get("completed")):
        return 0.0
    begin, end = (datetime.fromisoformat(vertex[key]) for key in ("started", "completed"))
    return max(0.0, (end - begin).total_seconds())


def _decode(data: str) -> bytes:
    return base64.b64decode(data, validate=True)
