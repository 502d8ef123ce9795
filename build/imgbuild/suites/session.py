"""Test images: take over what passed before, run the other suites, write the reports."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from imgbuild.engine.client import Engine
from imgbuild.engine.progress import ImageNote, ImageState, Listener
from imgbuild.errors import ImgbuildError
from imgbuild.files import write_text
from imgbuild.parallel import as_completed
from imgbuild.project import Project
from imgbuild.suites.catalog import choose_suites, code_digest, suite_keys
from imgbuild.suites.container import TestTarget
from imgbuild.suites.results import Report, Verdict
from imgbuild.suites.runner import JUNIT, Stop, SuiteRun, run_suites
from imgbuild.suites.store import ReportStore
from imgbuild.suites.summary import summary

REPORT, SUMMARY = "report.json", "summary.md"


@dataclass(frozen=True)
class TestOptions:
    """Which suites, none for all; ``rerun`` those too that passed before.

    ``fail_fast`` ends a run with the first failed check; ``stop`` ends it where it stands.
    """

    __test__ = False  # the name begins with Test, but pytest must not collect it

    suites: tuple[str, ...] = ()
    rerun: bool = False
    fail_fast: bool = False
    stop: Stop = field(default_factory=Stop)


@dataclass(frozen=True)
class TestSession:
    """What a test of any image needs: the suites, the engine, and where results go."""

    __test__ = False

    project: Project
    engine: Engine
    host: str | None
    store: ReportStore
    reports: Path
    listener: Listener

    def test(self, target: TestTarget, options: TestOptions) -> Report:
        """Return the report of an image; it is written, and its results are kept.

        Raises:
            InputError: the image has no such suite.
            MachineError: the engine cannot start its container.
            CheckFailedError: the suites could not be run.
            SuitesStoppedError: the run was interrupted.

        """
        suites = choose_suites(self.project.suites, options.suites, target.variant)
        keys = suite_keys(suites, target.expected)
        offered = target.variant == "gpu" and self.engine.version().gpus is not None
        known = {}
        if not options.rerun:
            known = self.store.passed(target.image_id, keys, gpus=offered)
        todo = tuple(name for name in keys if name not in known)
        before = f"not run again: {', '.join(sorted(known))}" if known else ""
        say = partial(ImageState, target.name, "testing")
        self.listener(say("; ".join(filter(None, (", ".join(todo), before)))))
        folder = self.reports / target.folder
        if todo:
            run = SuiteRun(
                target,
                todo,
                folder,
                fail_fast=options.fail_fast,
                log=lambda text: self.listener(say(text)),
                step=lambda text: self.listener(ImageNote(target.name, text)),
                stop=options.stop,
            )
            fresh = run_suites(run, self.engine, self.host, self.project)
        else:
            (folder / JUNIT).unlink(missing_ok=True)
            code = code_digest(self.project.suites)
            fresh = Report(target.name, target.image_id, code, (), offered)
        self.store.save(target.image_id, keys, fresh.suites, gpus=fresh.gpus)
        results = {**known, **{result.suite: result for result in fresh.suites}}
        report = replace(
            fresh,
            suites=tuple(results[name] for name in keys if name in results),
            reference=target.reference,
            unspecified=target.unspecified,
        )
        self.listener(ImageState(target.name, str(report.verdict)))
        write_text(folder / REPORT, json.dumps(report.as_json(), indent=2) + "\n")
        write_text(folder / SUMMARY, summary([report]))
        return report


@dataclass
class TestRun:
    """The outcome of each image, in the order of the targets: its report, or why it has none.

    ``not_begun`` are images that came after the first failure, where that ends the run.
    """

    __test__ = False

    reports: list[Report] = field(default_factory=list)
    errors: dict[str, ImgbuildError] = field(default_factory=dict)
    not_begun: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Write ``report.json`` and ``summary.md`` of the whole run."""
        reports = [report.as_json() for report in self.reports]
        write_text(folder / REPORT, json.dumps(reports, indent=2) + "\n")
        errors = {name: str(error) for name, error in self.errors.items()}
        write_text(folder / SUMMARY, summary(self.reports, errors))


def run_targets(
    targets: Sequence[TestTarget], session: TestSession, options: TestOptions, jobs: int
) -> TestRun:
    """Return the outcome of all images, ``jobs`` of them at a time.

    An interrupt ends all of them: pytest removes what its suites started, then the container goes.
    """

    def outcome_of(target: TestTarget) -> Report | ImgbuildError:
        try:
            return session.test(target, options)
        except ImgbuildError as error:
            return error

    def goes_on(outcome: Report | ImgbuildError) -> bool:
        passed = isinstance(outcome, Report) and outcome.verdict is not Verdict.FAILED
        return passed or not options.fail_fast

    stop = options.stop.stop
    done = as_completed(outcome_of, targets, jobs, goes_on=goes_on, stop=stop, grace=None)
    outcomes = {target.name: outcome for target, outcome in done}
    run = TestRun()
    for target in targets:
        outcome = outcomes.get(target.name)
        if outcome is None:
            run.not_begun.append(target.name)
        elif isinstance(outcome, Report):
            run.reports.append(outcome)
        else:
            run.errors[target.name] = outcome
    return run
