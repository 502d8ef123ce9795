"""Testing one image: what passed before is taken over, the rest is run, all of it is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from imgbuild.engine.client import Engine
from imgbuild.engine.display import BuildDisplay
from imgbuild.project import Project
from imgbuild.suites.code import choose_suites, code_digest, suite_keys
from imgbuild.suites.files import write_report
from imgbuild.suites.report import Report, SuiteResult
from imgbuild.suites.run import SuiteRun, run_suites
from imgbuild.suites.stopping import Stop
from imgbuild.suites.store import ReportStore
from imgbuild.suites.subject import Subject


@dataclass(frozen=True)
class How:
    """Which suites, none for all; ``rerun`` those too that passed before.

    ``fail_fast`` ends a run with the first failed check; ``stop`` ends it where it stands.
    """

    suites: tuple[str, ...] = ()
    rerun: bool = False
    fail_fast: bool = False
    stop: Stop = field(default_factory=Stop)


@dataclass(frozen=True)
class Examiner:
    """What a test of any image needs: the suites, the engine, and where results go."""

    project: Project
    engine: Engine
    host: str | None
    store: ReportStore
    reports: Path
    display: BuildDisplay

    def examine(self, subject: Subject, how: How) -> Report:
        """Return the report of an image; what was found is remembered.

        Raises:
            InputError: the image has no such suite.
            MachineError: the engine cannot start its container.
            CheckFailedError: the suites could not be run.
            StoppedError: the run was interrupted.

        """
        suites = choose_suites(self.project.suites, how.suites, subject.variant)
        keys = suite_keys(suites, subject.expected)
        chosen = tuple(suite.name for suite in suites)
        offered = subject.variant == "gpu" and self.engine.version().gpus is not None
        known = self.store.passed(subject.image_id, keys, gpus=offered) if not how.rerun else {}
        todo = tuple(name for name in chosen if name not in known)
        self._announce(subject, todo, known)
        fresh = self._run(subject, todo, how) if todo else self._nothing_to_run(subject, offered)
        self.store.save(subject.image_id, keys, fresh.suites, gpus=fresh.gpus)
        report = _joined(fresh, subject, chosen, known)
        self.display.note(subject.name, str(report.found), ended=True)
        write_report(report, self.reports / subject.folder)
        return report

    def _announce(
        self, subject: Subject, todo: tuple[str, ...], known: Mapping[str, SuiteResult]
    ) -> None:
        before = f"not run again: {', '.join(sorted(known))}" if known else ""
        text = "; ".join(filter(None, (", ".join(todo), before)))
        self.display.note(subject.name, "testing", text)

    def _run(self, subject: Subject, todo: tuple[str, ...], how: How) -> Report:
        run = SuiteRun(
            subject,
            todo,
            self.reports / subject.folder,
            fail_fast=how.fail_fast,
            say=lambda text: self.display.note(subject.name, "testing", text),
            step=lambda text: self.display.step(subject.name, text),
            stop=how.stop,
        )
        return run_suites(run, self.engine, self.host, self.project)

    def _nothing_to_run(self, subject: Subject, offered: bool) -> Report:
        (self.reports / subject.folder / "junit.xml").unlink(missing_ok=True)
        code = code_digest(self.project.suites)
        return Report(subject.name, subject.image_id, code, (), offered)


def _joined(
    fresh: Report, subject: Subject, chosen: tuple[str, ...], known: Mapping[str, SuiteResult]
) -> Report:
    """Return the report with what passed before, in the order of the suites."""
    results = {**known, **{result.suite: result for result in fresh.suites}}
    order = [*chosen, *(name for name in results if name not in chosen)]
    return replace(
        fresh,
        suites=tuple(results[name] for name in order if name in results),
        reference=subject.reference,
        not_given=subject.not_given,
    )
