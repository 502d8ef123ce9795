"""Read ``--progress=rawjson``: one BuildKit ``SolveStatus`` a line, on standard error.

A step (vertex) is known by its digest. Targets that share it each report it under a name of their
own, and several times over; its output comes once.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from imgbuild.engine.progress import (
    BuildEvent,
    Item,
    Remark,
    State,
    StepOutput,
    StepPlanned,
    Transfer,
    is_cancelled,
    split_name,
)

Message = Mapping[str, Any]


@dataclass
class _Vertex:
    number: int
    step: str = ""
    states: dict[str | None, State] = field(default_factory=dict)
    #: Who shares the step, begun or not.
    targets: dict[str | None, None] = field(default_factory=dict)
    statuses: set[str] = field(default_factory=set)
    moved: dict[str, int] = field(default_factory=dict)
    #: What each of stdout and stderr wrote after its last line end.
    pending: dict[int, bytes] = field(default_factory=dict)

    def output(self, text: str) -> StepOutput:
        return StepOutput(_images(self.states), self.step, text, self.number)


class RawJsonParser:
    """A `ProgressParser` for the targets of one bake."""

    def __init__(self, targets: Sequence[str]) -> None:
        self._targets = tuple(targets)
        self._vertices: dict[str, _Vertex] = {}

    def feed(self, line: str) -> list[Item]:
        """Return what one line tells."""
        try:
            return list(self._items(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError):
            return [Remark(line.rstrip())] if line.strip() else []

    def _items(self, message: Message) -> Iterator[Item]:
        # Output goes first: the last lines of a step can come together with its end.
        known = [one for one in message.get("vertexes") or () if one["digest"]]
        for vertex in known:  # all are named first: one may wait for a later one
            self._name(vertex)
        for vertex in known:
            yield from self._plan(vertex)
        for log in message.get("logs") or ():
            yield from self._output(log)
        for status in message.get("statuses") or ():
            yield from self._status(status)
        for vertex in known:
            yield from self._change(vertex)
        for warning in message.get("warnings") or ():
            yield Remark("warning: " + _decoded(warning["short"]).decode("utf-8", "replace"))

    def _vertex(self, digest: str) -> _Vertex:
        return self._vertices.setdefault(digest, _Vertex(len(self._vertices) + 1))

    def _name(self, message: Message) -> None:
        vertex = self._vertex(message["digest"])
        _, step = split_name(message["name"], self._targets)
        vertex.step = vertex.step or step

    def _plan(self, message: Message) -> Iterator[Item]:
        """Yield that a step is planned, when a target first speaks of it."""
        vertex = self._vertex(message["digest"])
        target, step = split_name(message["name"], self._targets)
        if target not in vertex.targets:
            vertex.targets[target] = None
            after = tuple(self._vertex(digest).number for digest in message.get("inputs") or ())
            yield StepPlanned(target, step, vertex.number, after)

    def _change(self, message: Message) -> Iterator[Item]:
        """Yield the event, unless this target's step already was in that state.

        A step can run again after it was done: once for its metadata, once for its content.
        """
        vertex = self._vertex(message["digest"])
        target, step = split_name(message["name"], self._targets)
        state = _state(message)
        if state is None or state == vertex.states.get(target):
            return
        vertex.states[target] = state
        if state != "running":
            yield from _flushed(vertex)
        error = str(message.get("error") or "")
        yield BuildEvent(target, step, state, _elapsed(message), vertex.number, error)

    def _output(self, message: Message) -> Iterator[Item]:
        vertex = self._vertex(message["vertex"])
        stream = int(message.get("stream") or 0)
        data = vertex.pending.pop(stream, b"") + _decoded(message["data"])
        *lines, vertex.pending[stream] = data.split(b"\n")
        for line in lines:
            yield vertex.output(_shown(line))

    def _status(self, message: Message) -> Iterator[Item]:
        """Yield the bytes that a part of a step, such as a download, has moved, and its end once.

        Targets that share a step each tell of its parts, one a little behind the other.
        """
        vertex, name = self._vertex(message["vertex"]), str(message["id"])
        current, total = int(message.get("current") or 0), int(message.get("total") or 0)
        if current > vertex.moved.get(name, 0):
            vertex.moved[name] = current
            yield Transfer(_images(vertex.targets), vertex.number, name, current, total)
        if message.get("completed") and name not in vertex.statuses:
            vertex.statuses.add(name)
            yield vertex.output(f"{name} done")


def _images(targets: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(target for target in targets if target is not None)


def _flushed(vertex: _Vertex) -> Iterator[Item]:
    for line in filter(None, vertex.pending.values()):
        yield vertex.output(_shown(line))
    vertex.pending.clear()


def _state(message: Message) -> State | None:
    if message.get("error"):
        return "cancelled" if is_cancelled(message["error"]) else "failed"
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


def _shown(line: bytes) -> str:
    """Return a line as a terminal shows it in the end: what a progress bar overwrote is gone."""
    return line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2].rstrip()
