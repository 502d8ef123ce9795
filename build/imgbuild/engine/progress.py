"""The events of a bake, and how buildx's progress is read into them.

``--progress=rawjson`` is one BuildKit ``SolveStatus`` a line, on standard error. A step (vertex) is
known by its digest. Targets that share it each report it under a name of their own, and several
times over; its output comes once.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

#: Steps that a build does without, as on a first build, for which a registry has nothing yet.
_OF_CACHE = ("importing cache manifest from ", "exporting cache to ")
StepState = Literal["planned", "running", "cached", "done", "failed", "cancelled"]
Message = Mapping[str, Any]


@dataclass(frozen=True)
class BuildEvent:
    """A step of a target changed its state. ``elapsed`` is in seconds, 0 while it runs.

    ``target`` is an image name, or ``None`` for a step of bake itself. A step that several targets
    share has one number, and one event for each of them. A planned one has not begun: it is known
    as soon as BuildKit has read the Dockerfile.
    """

    target: str | None
    step: str
    state: StepState
    elapsed: float = 0.0
    number: int = 0
    error: str = ""


@dataclass(frozen=True)
class BakeBegun:
    """A bake of these images begins: step numbers start anew, what was done before is cached.

    ``builder`` builds them, unless that is the engine.
    """

    targets: tuple[str, ...]
    builder: str | None = None


@dataclass(frozen=True)
class Transfer:
    """How far a step is with moving bytes: a context, a layer that is pulled or exported."""

    targets: tuple[str, ...]
    number: int
    name: str
    current: int


@dataclass(frozen=True)
class StepOutput:
    """One line that a step wrote. ``targets`` are all that are known to share the step."""

    targets: tuple[str, ...]
    text: str
    number: int


@dataclass(frozen=True)
class Remark:
    """A line outside any step: buildx's own words, such as the final ``ERROR: …``."""

    text: str


BakeEvent = BakeBegun | BuildEvent | Transfer
Item = BakeEvent | StepOutput | Remark


def is_internal(step: str) -> bool:
    """Return whether a step is BuildKit's own housekeeping, of no interest while all goes well."""
    if " LINK COPY " in step or " LINK ADD " in step:  # joins what COPY --link made
        return True
    return step.startswith(("[internal]", "[context ", "resolving ", "[auth]"))


def is_export(step: str) -> bool:
    """Return whether a step writes the finished image: the last of every target."""
    return step.startswith("exporting to ")


def bake_name(image: str) -> str:
    """Return an image name as bake allows it: ``tf-2.2-cpu`` is ``tf-2_2-cpu``.

    Bake takes only ``[a-zA-Z0-9_-]``; image names have no underscore, so no two names meet.
    """
    return image.replace(".", "_")


def split_name(name: str, targets: Sequence[str]) -> tuple[str | None, str]:
    """Return the image and the bare step of a vertex name.

    With several targets, bake writes ``[TARGET STAGE 3/4] RUN …`` and ``[TARGET] exporting …``;
    with a single one it leaves the target out.
    """
    step = " ".join(name.split())
    if len(targets) == 1:
        return targets[0], step
    found = re.fullmatch(r"\[([^\] ]+) ?([^\]]*)\] (.*)", step)
    image = {bake_name(target): target for target in targets}.get(found[1]) if found else None
    if found is None or image is None:
        return None, step
    return image, f"[{found[2]}] {found[3]}" if found[2] else found[3]


@dataclass
class _Vertex:
    number: int
    #: The state of the step by target, ``None`` before it begins.
    states: dict[str | None, StepState | None] = field(default_factory=dict)
    #: The parts of the step that ended, and how far each has come, in bytes.
    finished: set[str] = field(default_factory=set)
    moved: dict[str, int] = field(default_factory=dict)
    #: What each of stdout and stderr wrote after its last line end.
    pending: dict[int, bytes] = field(default_factory=dict)

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(target for target in self.states if target is not None)

    def output(self, line: bytes) -> StepOutput:
        """Return a line as a terminal shows it: what a progress bar overwrote is gone."""
        text = line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2].rstrip()
        return StepOutput(self.targets, text, self.number)


class ProgressParser:
    """Reads the progress of one bake, line by line. It has a memory, but no clock."""

    def __init__(self, targets: Sequence[str]) -> None:
        self._targets = tuple(targets)
        self._vertices: dict[str, _Vertex] = {}

    def feed(self, line: str) -> list[Item]:
        """Return the events of one line; an unknown line is a `Remark`."""
        try:
            return list(self._items(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError):
            return [Remark(line.rstrip())] if line.strip() else []

    def _items(self, message: Message) -> Iterator[Item]:
        steps = [
            (one, self._vertex(one["digest"]), *split_name(one["name"], self._targets))
            for one in message.get("vertexes") or ()
            if one["digest"]
        ]
        for _, vertex, target, step in steps:
            if target not in vertex.states:
                vertex.states[target] = None
                yield BuildEvent(target, step, "planned", number=vertex.number)
        # Output goes first: the last lines of a step can come together with its end.
        for log in message.get("logs") or ():
            yield from self._output(log)
        for status in message.get("statuses") or ():
            yield from self._status(status)
        for said, vertex, target, step in steps:
            yield from _changed(vertex, target, step, said)
        for warning in message.get("warnings") or ():
            yield Remark("warning: " + _decoded(warning["short"]).decode("utf-8", "replace"))

    def _vertex(self, digest: str) -> _Vertex:
        return self._vertices.setdefault(digest, _Vertex(len(self._vertices) + 1))

    def _output(self, message: Message) -> Iterator[Item]:
        vertex = self._vertex(message["vertex"])
        stream = int(message.get("stream") or 0)
        data = vertex.pending.pop(stream, b"") + _decoded(message["data"])
        *lines, vertex.pending[stream] = data.split(b"\n")
        yield from map(vertex.output, lines)

    def _status(self, message: Message) -> Iterator[Item]:
        """Yield the bytes that a part of a step, such as a download, has moved, and its end once.

        Targets that share a step each report its parts, one a little behind the other.
        """
        vertex, name = self._vertex(message["vertex"]), str(message["id"])
        current = int(message.get("current") or 0)
        if current > vertex.moved.get(name, 0):
            vertex.moved[name] = current
            yield Transfer(vertex.targets, vertex.number, name, current)
        if message.get("completed") and name not in vertex.finished:
            vertex.finished.add(name)
            yield vertex.output(f"{name} done".encode())


def _changed(vertex: _Vertex, target: str | None, step: str, message: Message) -> Iterator[Item]:
    """Yield the event, unless this target's step already was in that state.

    A step can run again after it was done: once for its metadata, once for its content.
    """
    state = _state(message)
    if state == "failed" and step.startswith(_OF_CACHE):
        yield Remark(f"warning: {step}: {message['error']}")
        state, message = "done", {**message, "error": ""}
    if state is None or state == vertex.states[target]:
        return
    vertex.states[target] = state
    if state != "running":
        yield from (vertex.output(line) for line in vertex.pending.values() if line)
        vertex.pending.clear()
    error = str(message.get("error") or "")
    yield BuildEvent(target, step, state, _elapsed(message), vertex.number, error)


def _state(message: Message) -> StepState | None:
    if error := message.get("error"):
        # So ends a step that was stopped because another one failed, or the build was stopped.
        return "cancelled" if error.rstrip().endswith("context canceled") else "failed"
    if message.get("cached"):
        return "cached"
    if message.get("completed"):
        return "done"
    return "running" if message.get("started") else None


def _elapsed(message: Message) -> float:
    if not (message.get("started") and message.get("completed")):
        return 0.0
    begin, end = (datetime.fromisoformat(message[key]) for key in ("started", "completed"))
    return max(0.0, (end - begin).total_seconds())


def _decoded(data: str) -> bytes:
    return base64.b64decode(data, validate=True)


def log_line(item: Item) -> str:
    """Return an item as the log shows it, without the time; nothing of one that it does not."""
    match item:
        case Remark():
            return item.text
        case StepOutput():
            first, *others = item.targets or ("bake",)
            more = f" and {len(others)} more" if others else ""
            return f"[{first}{more}] #{item.number} {item.text}"
        case BuildEvent() if item.state != "planned":
            error = f": {item.error}" if item.error else ""
            outcome = f"{item.state} after {item.elapsed:.1f} s{error}"
            outcome = "started" if item.state == "running" else outcome
            return f"[{item.target or 'bake'}] #{item.number} {item.step} ({outcome})"
        case _:
            return ""
