"""Read ``--progress=plain``, for a buildx without rawjson.

    #7 [bad horovod 1/1] RUN make      the step's name, when it starts or its output goes on
    #7 0.195 compiling                 output, with seconds since its start
    #7 DONE 0.7s                       CACHED, CANCELED, ERROR: …

A step that targets share is named after one of them, and after another when its output goes on:
the format need not tell all of them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from imgbuild.engine.progress import BuildEvent, Item, Remark, State, StepOutput, split_name

_LINE = re.compile(r"#([0-9]+) (.*)")
_OUTPUT = re.compile(r"([0-9]+\.[0-9]+) ?(.*)")
_DONE = re.compile(r"DONE ([0-9.]+)s")
_ENDS: dict[str, State] = {"CACHED": "cached", "CANCELED": "cancelled"}


@dataclass
class _Step:
    name: str
    number: int
    targets: list[str | None]
    seconds: float = 0.0

    def events(self, state: State, elapsed: float = 0.0, error: str = "") -> list[Item]:
        return [
            BuildEvent(target, self.name, state, elapsed, self.number, error)
            for target in self.targets
        ]

    def output(self, text: str) -> list[Item]:
        targets = tuple(target for target in self.targets if target)
        return [StepOutput(targets, self.name, text, self.number)]


class PlainParser:
    """A `ProgressParser` for the targets of one bake."""

    def __init__(self, targets: Sequence[str]) -> None:
        self._targets = tuple(targets)
        self._steps: dict[int, _Step] = {}

    def feed(self, line: str) -> list[Item]:
        """Return what one line tells."""
        line = line.rstrip()
        found = _LINE.fullmatch(line)
        if found is None or found[1] == "0":
            return [Remark(line)] if line else []
        number, text = int(found[1]), found[2]
        target, name = split_name(text, self._targets)
        step = self._steps.setdefault(number, _Step(name, number, []))
        if name == step.name:
            return _announced(step, target)
        return [] if text == "..." else _told(step, text)


def _announced(step: _Step, target: str | None) -> list[Item]:
    """Return that a step runs, if it is new or a target's that was not known to share it."""
    if target in step.targets:
        return []
    step.targets.append(target)
    return [BuildEvent(target, step.name, "running", number=step.number)]


def _told(step: _Step, text: str) -> list[Item]:
    if done := _DONE.fullmatch(text):
        return step.events("done", float(done[1]))
    if text in _ENDS:
        return step.events(_ENDS[text], step.seconds)
    if text.startswith("ERROR: "):
        return step.events("failed", step.seconds, text.removeprefix("ERROR: "))
    if output := _OUTPUT.fullmatch(text):
        step.seconds = float(output[1])
        return step.output(output[2])
    return step.output(text)
