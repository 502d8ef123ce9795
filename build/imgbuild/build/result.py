"""The results of a build: one for each image, and all together."""

from dataclasses import dataclass
from typing import Any

from imgbuild.core.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.engine.faults import EngineUnusableError
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.results import Report


def concerns_all(error: ImgbuildError) -> bool:
    """Return whether no image can be built: the engine cannot be used, or its disk is full.

    Another `MachineError`, such as an upstream that cannot be reached, may concern one image only.
    """
    from imgbuild.engine.failure import BuildFailedError  # noqa: PLC0415 - only where one failed

    if isinstance(error, BuildFailedError):
        return error.fault is not None and error.fault.stops_all
    return isinstance(error, EngineUnusableError)


@dataclass(frozen=True)
class BuildResult:
    """One image after a build. Times are wall seconds, ``size`` is in bytes.

    ``build_seconds`` is how long its build took, beside others; ``work_seconds`` is the sum of the
    times of its steps. ``builder`` built it, unless that was the engine. Its build was
    ``cancelled`` if another image's failure ended it.
    """

    item: PlanItem
    image_id: str | None = None
    size: int = 0
    build_seconds: float = 0.0
    test_seconds: float = 0.0
    report: Report | None = None
    tagged: bool = False
    error: ImgbuildError | None = None
    work_seconds: float = 0.0
    builder: str | None = None
    cancelled: bool = False

    @property
    def name(self) -> str:
        return self.item.image.name

    @property
    def ok(self) -> bool:
        return self.tagged and self.error is None

    @property
    def state(self) -> str:
        if self.report and not self.report.ok:
            return f"suites {self.report.verdict}"
        if self.error:
            return "failed"
        if self.cancelled:
            return "cancelled"
        return "up to date" if self.item.action is Action.NOTHING else "done"

    def ends_build(self, *, keep_going: bool) -> bool:
        """Return whether no further image begins after this result."""
        if self.error is None:
            return False
        return not keep_going or concerns_all(self.error)

    def as_json(self) -> dict[str, Any]:
        """Return what ``build --json`` prints."""
        return {
            **self.item.as_json(),
            "image_id": self.image_id or self.item.image_id,
            "state": self.state,
            "builder": self.builder,
            "tags": list(self.item.image.tags) if self.ok else [],
            "size": self.size,
            "build_seconds": round(self.build_seconds, 1),
            "test_seconds": round(self.test_seconds, 1),
            "report": self.report.as_json() if self.report else None,
            "error": str(self.error) if self.error else None,
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
        errors = {result.name: result.error for result in self.results if result.error}
        if not errors:
            return self.stop
        # One paragraph a reason, with all images that it concerns.
        names: dict[str, list[str]] = {}
        for name, error in errors.items():
            names.setdefault(_cause(error), []).append(name)
        reasons = [
            f"{', '.join(of)} {'was' if len(of) == 1 else 'were'} not tagged: {errors[of[0]]}"
            for of in names.values()
        ]
        text = "\n".join(filter(None, (*reasons, str(self.stop or ""), self.full_disk)))
        of_machine = all(error.exit_code == MachineError.exit_code for error in errors.values())
        machine = self.full_disk or self.stop or of_machine
        return MachineError(text) if machine else CheckFailedError(text)


def _cause(error: ImgbuildError) -> str:
    """Return what errors of images have in common: the failing step, else the whole text."""
    from imgbuild.engine.failure import BuildFailedError  # noqa: PLC0415 - only where one failed

    if isinstance(error, BuildFailedError):
        return f"{error.step} {error.cause}"
    return str(error)
