"""Read the steps of one build from buildx's progress.

With ``--progress=rawjson``, each line on standard error is one ``SolveStatus`` of BuildKit. A step
(vertex) is identified by its digest. If targets of a bake file share a step, each target reports it
under its own name.
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
#: The engine finds a base image that it has in less than this, in seconds. A pull takes longer and
#: counts as work.
FOUND_SECONDS = 1.0
#: Output of a step that has to wait before it compiles: every 10 s, and when the wait is over.
#: Source: images/files/compiling.sh.
WAITS = "imgbuild: waits for a place to compile"
GOES_ON = "imgbuild: has a place to compile"
#: Steps that may fail without failing the build. For example, the registry has no cache at first.
_OF_CACHE = ("importing cache manifest from ", "exporting cache to ")
#: Messages of an export, each with a digest, and which digest becomes the engine's id of the image:
#: the configuration's in a graph driver, the manifest's in a containerd store. A builder other than
#: the engine's own asks the engine which format to load.
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
    """One step of a build.

    - ``state``: ``planned`` until the step starts; BuildKit reports all steps once it has read the
      Dockerfile
    - ``elapsed``: run time in seconds; 0 until the step has ended
    - ``since``: start time in seconds, on a monotonic clock; None if the step does not run or waits
      to compile
    - ``tail``: the last lines of its output
    - ``written``: the digests that an export reported, by its message
    """

    number: int
    name: str
    state: StepState = "planned"
    elapsed: float = 0.0
    error: str = ""
    since: float | None = None
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    written: dict[str, str] = field(default_factory=dict)
    #: Output after the last line break, by the number of the stream (stdout, stderr).
    pending: dict[int, bytes] = field(default_factory=dict)
    #: Parts of the step that have ended, for example the layers of a pull.
    finished: set[str] = field(default_factory=set)

    @property
    def is_internal(self) -> bool:
        """Whether the step is BuildKit's own; it matters only if it fails."""
        joins = " LINK COPY " in self.name or " LINK ADD " in self.name  # from COPY --link
        return joins or self.name.startswith(("[internal]", "[context ", "resolving ", "[auth]"))

    @property
    def has_worked(self) -> bool:
        """Whether the step did work: not cached, not internal, not a base image that was there."""
        is_at_hand = "] FROM " in self.name and self.elapsed < FOUND_SECONDS
        return self.state == "done" and not self.is_internal and not is_at_hand

    @property
    def image_id(self) -> str | None:
        """The engine's id of the image that this step exported; None if it exported none."""
        words = _ID_OF.get(self.name, ())
        return next((self.written[word] for word in words if word in self.written), None)


class BuildSteps:
    """Reads the progress of one build, line by line.

    ``show`` is called with each step that starts or ends, but with an internal step only if it
    fails. ``targets`` are the names in the bake file, which bake writes into the names of steps.
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
        """The engine's id of the exported image; None if there is none."""
        return next((step.image_id for step in self._steps.values() if step.image_id), None)

    @property
    def work(self) -> float:
        """The total time of all steps that did work, in seconds."""
        return sum(step.elapsed for step in self._steps.values() if step.has_worked)

    def feed(self, line: str, now: float) -> list[str]:
        """Read one line and return its lines for the log; an unknown line becomes a remark."""
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
        """Mark a step that has run for ``seconds`` as failed and return it; 0 means no limit.

        The time that a step waits to compile does not count, because the step that hangs may be one
        of those that it waits for. If no step runs, or all of them wait, the same limit applies to
        the time without output, because buildx or the engine can also hang between steps.
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
        # Read output before states, because the last lines of a step can come with its end.
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

        With several targets, bake writes ``[TARGET STAGE 3/4] RUN …`` and ``[TARGET] exporting …``.
        With a single target, it omits the target.
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
        """Set a step's new state, if it changed; yield the lines for the log.

        A step that is done can run again: once for its metadata, once for its content.
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
    """Add a line of output, without text that a progress bar overwrote; return it for the log."""
    text = line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2].rstrip()
    step.tail.append(text)
    if export := _WRITTEN.fullmatch(text):
        step.written[export[1]] = export[2]
    if step.state == "running" and text.strip() in {WAITS, GOES_ON}:
        step.since = now if text.strip() == GOES_ON else None
    return f"#{step.number} {text}"


def _read_step_state(vertex: Message) -> StepState | None:
    if error := vertex.get("error"):
        # BuildKit ends the steps of a stopped build with this error.
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
