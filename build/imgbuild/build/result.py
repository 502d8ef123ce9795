"""The results of a build, per image and as a whole."""

from dataclasses import dataclass
from typing import Any

from imgbuild.core.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.engine.faults import EngineUnusableError
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.results import Report


def concerns_all(error: ImgbuildError) -> bool:
    """Return whether the error prevents all builds: the engine is unusable, or its disk is full.

    Other errors of the machine, for example an unreachable upstream, may concern only one image.
    """
    from imgbuild.engine.failure import BuildFailedError  # noqa: PLC0415 - only after a failure

    if isinstance(error, BuildFailedError):
        return error.fault is not None and error.fault.stops_all
    return isinstance(error, EngineUnusableError)


@dataclass(frozen=True)
class BuildResult:
    """The result of building one image. Times are in seconds, ``size`` is in bytes.

    ``build_seconds`` is the elapsed time of the build, which may have run in parallel with others.
    ``work_seconds`` is the sum of the times of its steps. ``builder`` is None if the engine built
    the image. ``cancelled`` means that the failure of another image ended the build.
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
        """Return whether the build starts no more images after this result."""
        if self.error is None:
            return False
        return not keep_going or concerns_all(self.error)

    def as_json(self) -> dict[str, Any]:
        """Return the image's entry in the output of ``build --json``."""
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
    """The results of a build, in the order of the images.

    ``planned`` is the number of images in the plan. ``stop`` is an error that ended the whole
    build. ``full_disk`` is a message if the disk is full.
    """

    results: tuple[BuildResult, ...]
    planned: int
    stop: ImgbuildError | OSError | None = None
    full_disk: str = ""

    def failure(self) -> ImgbuildError | OSError | None:
        """Return the error that ends the command; None if all images succeeded.

        It is a `MachineError` if this machine caused all failures, or if its disk is full.
        """
        errors = {result.name: result.error for result in self.results if result.error}
        if not errors:
            return self.stop
        # Write one paragraph per reason, with all images that have it.
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
    """Return a key that groups errors with the same cause: the failing step, or the message."""
    from imgbuild.engine.failure import BuildFailedError  # noqa: PLC0415 - only after a failure

    if isinstance(error, BuildFailedError):
        return f"{error.step} {error.cause}"
    return str(error)
