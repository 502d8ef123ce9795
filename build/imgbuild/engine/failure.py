"""Why a build failed: collected while it runs, said as an error at its end."""

import re
import textwrap
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from imgbuild.engine.diagnosis import Diagnosis, diagnose
from imgbuild.engine.progress import (
    BuildEvent,
    Item,
    Remark,
    StepOutput,
    bake_name,
    is_export,
)
from imgbuild.errors import CheckFailedError, MachineError

TAIL_LINES = 20
STEP_WIDTH = 160
#: How near to its end a step's output can say why it failed.
TELLING_LINES = 10
_TARGET_ERROR = re.compile(r"ERROR: target ([A-Za-z0-9_-]+): (.*)")


@dataclass(frozen=True)
class BuildFailure:
    """What is known of a failed build.

    ``failed`` failed by themselves; ``cancelled`` were only stopped because of those, and may be
    built again without them; ``finished`` were exported before (buildx gives no ids then: building
    them again takes them from its cache).
    """

    failed: tuple[str, ...]
    cancelled: tuple[str, ...]
    finished: tuple[str, ...]
    step: str
    error: str
    tail: tuple[str, ...]
    log: Path
    diagnosis: Diagnosis | None = None

    @property
    def advice(self) -> str:
        """What to do, if the fault is a known one."""
        return self.diagnosis.advice if self.diagnosis else ""

    def __str__(self) -> str:
        """Return the paragraph, with the last lines of output indented below it."""
        place = f" in the step '{textwrap.shorten(self.step, STEP_WIDTH)}'" if self.step else ""
        parts = [f"Building {', '.join(self.failed)} failed{place}: {self.error}."]
        if self.advice:
            parts.append(self.advice)
        if self.cancelled:
            parts.append(f"Cancelled with it, not faulty: {', '.join(self.cancelled)}.")
        parts.append(f"The whole output is in {self.log}.")
        output = "".join(f"\n    {line}" for line in self.tail)
        return " ".join(parts) + (f" Its last lines:{output}" if output else "")


class BuildFailedError(CheckFailedError):
    """A step of an image failed, or a download was not what was pinned."""

    def __init__(self, failure: BuildFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class BuildStoppedError(MachineError):
    """This machine could not build: disk, engine, network."""

    def __init__(self, failure: BuildFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


@dataclass
class BuildRecord:
    """What a running build has said so far, as much as a failure's report needs."""

    targets: Sequence[str]
    _tails: dict[int, deque[str]] = field(default_factory=dict)
    _failed: list[BuildEvent] = field(default_factory=list)
    _finished: set[str] = field(default_factory=set)
    _remarks: deque[str] = field(default_factory=lambda: deque(maxlen=100))

    def add(self, item: Item) -> None:
        """Take in one item of the progress stream."""
        if isinstance(item, StepOutput):
            self._tails.setdefault(item.number, deque(maxlen=TAIL_LINES)).append(item.text)
        elif isinstance(item, Remark):
            self._remarks.append(item.text)
        elif not isinstance(item, BuildEvent):
            return
        elif item.state == "failed":
            self._failed.append(item)
        elif item.state == "done" and item.target and is_export(item.step):
            self._finished.add(item.target)

    def failure(self, log: Path) -> BuildFailure:
        """Return the report, for a build that has ended with an error."""
        first = self._failed[0] if self._failed else None
        tail = tuple(self._tails.get(first.number, ())) if first else ()
        error = first.error if first else self._last_error()
        failed = self._failed_targets()
        return BuildFailure(
            failed=failed,
            cancelled=tuple(
                name for name in self.targets if name not in failed and name not in self._finished
            ),
            finished=tuple(name for name in self.targets if name in self._finished - {*failed}),
            step=first.step if first else "",
            error=_essence(error),
            tail=tail,
            log=log,
            diagnosis=diagnose([error, *tail[-TELLING_LINES:], *self._errors()]),
        )

    def _failed_targets(self) -> tuple[str, ...]:
        """Return who is to blame; if nobody can be named, everybody who is not finished.

        Never nobody: a caller that goes on without the failed ones would go on for ever. An engine
        that stops right after the last export has finished all of them, and given no ids.
        """
        named = {event.target for event in self._failed}
        blamed = {found[1] for error in self._errors() if (found := _TARGET_ERROR.match(error))}
        failed = [name for name in self.targets if name in named or bake_name(name) in blamed]
        unfinished = [name for name in self.targets if name not in self._finished]
        return tuple(failed or unfinished or self.targets)

    def _errors(self) -> list[str]:
        return [text for text in self._remarks if text.startswith("ERROR: ")]

    def _last_error(self) -> str:
        """Return the final word of a build that failed outside any step."""
        last = (self._errors() or [*self._remarks] or ["buildx said nothing"])[-1]
        found = _TARGET_ERROR.match(last)
        return found[2] if found else last.removeprefix("ERROR: ")


def raise_failure(failure: BuildFailure) -> None:
    """Raise the error that fits: the machine's fault or the build's."""
    if failure.diagnosis and failure.diagnosis.of_machine:
        raise BuildStoppedError(failure)
    raise BuildFailedError(failure)


def _essence(error: str) -> str:
    """Return an error without the command it quotes, which the step's name already shows."""
    text = error.rpartition("did not complete successfully: ")[2].removeprefix("failed to solve: ")
    return " ".join(text.split()).rstrip(".?!")
