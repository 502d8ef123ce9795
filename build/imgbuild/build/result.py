"""The results of a build: one for each image, and all together."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from imgbuild.engine.failure import BuildStoppedError
from imgbuild.engine.faults import EngineUnusableError
from imgbuild.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.results import Report


class FailureScope(StrEnum):
    """How far a failure reaches.

    ``MACHINE``: this machine lacks something for the image, such as an upstream that cannot be
    reached; other images may not need it. ``ENGINE``: the engine or its disk, which every image
    needs.
    """

    IMAGE = "image"
    MACHINE = "machine"
    ENGINE = "engine"


def scope_of(error: ImgbuildError) -> FailureScope:
    """Return how far an error reaches that ended the work on one image."""
    if isinstance(error, EngineUnusableError):
        return FailureScope.ENGINE
    if isinstance(error, BuildStoppedError):
        fault = error.failure.fault
        return FailureScope.ENGINE if fault and fault.of_all else FailureScope.MACHINE
    return FailureScope.MACHINE if isinstance(error, MachineError) else FailureScope.IMAGE


@dataclass(frozen=True)
class BuildResult:
    """One image after a build. Times are wall seconds, ``size`` is in bytes.

    ``build_seconds`` is the image's own time: from its first step that was not cached to its
    export. ``scope`` counts only with an ``error``.
    """

    item: PlanItem
    image_id: str | None = None
    size: int = 0
    build_seconds: float = 0.0
    test_seconds: float = 0.0
    report: Report | None = None
    tagged: bool = False
    error: str | None = None
    scope: FailureScope = FailureScope.IMAGE

    @property
    def name(self) -> str:
        return self.item.image.name

    @property
    def ok(self) -> bool:
        """Whether the image has its tags now."""
        return self.tagged and self.error is None

    @property
    def state(self) -> str:
        """How a table calls it."""
        if self.report and not self.report.ok:
            return f"suites {self.report.verdict}"
        if self.error:
            return "failed"
        return "up to date" if self.item.action is Action.NOTHING else "done"

    def ends_build(self, *, keep_going: bool) -> bool:
        """Return whether no further image begins after this result."""
        return not self.ok and (not keep_going or self.scope is FailureScope.ENGINE)

    def as_json(self) -> dict[str, Any]:
        """Return what ``build --json`` prints."""
        return {
            **self.item.as_json(),
            "image_id": self.image_id or self.item.image_id,
            "state": self.state,
            "tags": list(self.item.image.tags) if self.ok else [],
            "size": self.size,
            "build_seconds": round(self.build_seconds, 1),
            "test_seconds": round(self.test_seconds, 1),
            "report": self.report.as_json() if self.report else None,
            "error": self.error,
        }


@dataclass(frozen=True)
class Build:
    """The results of a build, in the order of the images; ``planned`` is how many there should be.

    ``stop`` is an error that ended the whole build, ``full_disk`` a message if the disk is full.
    """

    results: tuple[BuildResult, ...]
    planned: int
    stop: ImgbuildError | OSError | None = None
    full_disk: str = ""

    def failure(self) -> ImgbuildError | OSError | None:
        """Return the error that the command ends with, if any.

        It is a `MachineError` if this machine is the cause of all failures, or its disk is full.
        """
        failed = [one for one in self.results if not one.ok]
        if not failed:
            return self.stop
        # One paragraph a reason, with all images that it concerns.
        names: dict[str, list[str]] = {}
        for one in failed:
            names.setdefault(one.error or "", []).append(one.name)
        reasons = [
            f"{', '.join(of)} {'was' if len(of) == 1 else 'were'} not tagged: {error}"
            for error, of in names.items()
        ]
        text = "\n".join(filter(None, (*reasons, str(self.stop or ""), self.full_disk)))
        of_image = any(one.scope is FailureScope.IMAGE for one in failed)
        of_machine = self.full_disk or self.stop or not of_image
        return MachineError(text) if of_machine else CheckFailedError(text)
