"""Test images: take over what passed before, run the other suites, write the reports."""

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from imgbuild.errors import ImgbuildError
from imgbuild.events import ImageState, State
from imgbuild.files import write_text
from imgbuild.parallel import as_completed
from imgbuild.suites.catalog import choose_suites, code_digest, suite_keys
from imgbuild.suites.container import TestTarget, gpu_fingerprint
from imgbuild.suites.results import Report, SuiteResult, Verdict
from imgbuild.suites.runner import JUNIT, TestOptions, TestSession, folder_name, run_suites
from imgbuild.text import count_text

REPORT, SUMMARY = "report.json", "summary.md"
#: How many lines of one failure the summary has; the rest is in ``report.json`` and ``junit.xml``.
LINES_SHOWN = 30
#: GitHub refuses a summary of more than 1 MiB; so many failures are shown in full.
FAILURES_SHOWN = 100
_SIGNS = {
    Verdict.PASSED: "✅",
    Verdict.FAILED: "❌",
    Verdict.TIMED_OUT: "⏱️",
    Verdict.INCOMPLETE: "⚠️",
    Verdict.SKIPPED: "⏭️",
}


def report_on(target: TestTarget, session: TestSession, options: TestOptions) -> Report:
    """Return the report of an image; it is written, and its results are kept.

    InputError: the image has no such suite. Others are those of `run_suites`.
    """
    suites = choose_suites(session.project.suites, options.suites, target.expected)
    keys = suite_keys(suites, target.expected)
    gpus = gpu_fingerprint(session.engine) if target.variant == "gpu" else None
    known = {} if options.rerun else session.store.passed(target.image_id, keys, gpus=gpus)
    todo = tuple(name for name in keys if name not in known)
    before = f"not run again: {', '.join(sorted(known))}" if known else ""
    text = "; ".join(filter(None, (", ".join(todo), before)))
    session.listener(ImageState(target.name, State.TESTING, text))
    folder = session.reports / folder_name(target.name)
    (folder / JUNIT).unlink(missing_ok=True)
    none = Report(target.name, target.image_id, code_digest(session.project.suites), ())
    fresh = run_suites(target, todo, session, options) if todo else none
    session.store.save(target.image_id, keys, fresh.suites, gpus=gpus)
    results = {**known, **{result.suite: result for result in fresh.suites}}
    report = replace(
        fresh,
        gpus=gpus is not None,
        suites=tuple(results[name] for name in keys if name in results),
        reference=target.reference,
    )
    session.listener(ImageState(target.name, State(report.verdict)))
    write_text(folder / REPORT, json.dumps(report.as_json(), indent=2) + "\n")
    write_text(folder / SUMMARY, summary([report], {}))
    return report


@dataclass(frozen=True)
class TestRun:
    """The outcome of each image, in the order of the targets: its report, or why it has none.

    ``not_begun`` are images that came after the first failure, where that ends the run. ``summary``
    is the file for people.
    """

    __test__ = False

    reports: list[Report]
    errors: dict[str, ImgbuildError]
    not_begun: list[str]
    summary: Path


def run_targets(
    targets: Sequence[TestTarget], session: TestSession, options: TestOptions, jobs: int
) -> TestRun:
    """Test all images, ``jobs`` suites at a time; write ``report.json`` and ``summary.md`` of all.

    An interrupt ends all of them: pytest removes what its suites started, then the container goes.
    """

    def outcome_of(target: TestTarget) -> Report | ImgbuildError:
        try:
            return report_on(target, session, options)
        except ImgbuildError as error:
            return error

    def goes_on(outcome: Report | ImgbuildError) -> bool:
        bad = {Verdict.FAILED, Verdict.TIMED_OUT}
        passed = isinstance(outcome, Report) and outcome.verdict not in bad
        return passed or not options.fail_fast

    options = replace(options, slots=threading.Semaphore(jobs))
    stop = options.stop.set
    done = as_completed(outcome_of, targets, jobs, goes_on=goes_on, stop=stop, grace=None)
    outcomes = {target.name: outcome for target, outcome in done}
    found = {one.name: outcomes.get(one.name) for one in targets}
    run = TestRun(
        [one for one in found.values() if isinstance(one, Report)],
        {name: one for name, one in found.items() if isinstance(one, ImgbuildError)},
        [name for name, one in found.items() if one is None],
        session.reports / SUMMARY,
    )
    reports = [report.as_json() for report in run.reports]
    write_text(session.reports / REPORT, json.dumps(reports, indent=2) + "\n")
    write_text(run.summary, summary(run.reports, run.errors))
    return run


def summary(reports: Sequence[Report], errors: Mapping[str, ImgbuildError]) -> str:
    """Return Markdown for ``$GITHUB_STEP_SUMMARY``: a table of suites by images, then failures.

    ``errors`` are, by image, why one could not be tested.
    """
    total = len(reports) + len(errors)
    good = sum(report.ok for report in reports)
    lost = [f"- `{name}`: {_inline(str(error))}" for name, error in errors.items()]
    notes = [f"- `{report.image}`: {_inline(note)}" for report in reports for note in report.notes]
    parts = [
        f"## imgbuild test: {good} of {count_text(total, 'image')} passed",
        _table(reports),
        *(["### Not tested", "\n".join(lost)] if lost else []),
        *_failures(reports),
        *(["### Not checked", "\n".join(notes)] if notes else []),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(reports: Sequence[Report]) -> str:
    """Return a row a suite and a column an image."""
    if not reports:
        return ""
    suites = list(dict.fromkeys(s.suite for report in reports for s in report.suites))
    by_image = [{suite.suite: suite for suite in report.suites} for report in reports]
    whole = [f"{_SIGNS[one.verdict]} **{one.verdict}**, {one.seconds:.0f} s" for one in reports]
    rows = [
        ["suite", *(f"`{report.image}`" for report in reports)],
        ["---"] * (len(reports) + 1),
        *([f"`{name}`", *(_cell(found.get(name)) for found in by_image)] for name in suites),
        ["**all**", *whole],
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(suite: SuiteResult | None) -> str:
    """Return verdict, checks and seconds: ``✅ passed, 14 checks, 2.4 s``."""
    if suite is None:
        return ""
    bad = {"failed": suite.failures, "timed out": suite.timed_out}
    checks = count_text(suite.passed + sum(map(len, bad.values())), "check")
    if suite.before:
        return f"{_SIGNS[suite.verdict]} {suite.verdict} before ({suite.before}), {checks}"
    others = {**bad, "skipped": suite.skips}
    more = [f"{len(found)} {word}" for word, found in others.items() if found]
    words = (f"{_SIGNS[suite.verdict]} {suite.verdict}", checks, *more, f"{suite.seconds:.1f} s")
    return ", ".join(words)


def _failures(reports: Sequence[Report]) -> Iterator[str]:
    failed = [
        (f"`{report.image}` {suite.suite}", suite)
        for report in reports
        for suite in report.suites
        if suite.verdict in {Verdict.FAILED, Verdict.TIMED_OUT}
    ]
    if failed:
        yield "### Failures"
    failures = [
        (place, failure)
        for place, suite in failed
        for failure in (*suite.failures, *suite.timed_out)
    ]
    for place, failure in failures[:FAILURES_SHOWN]:
        yield f"{place}: `{failure.test}`\n\n{_fenced(failure.message)}"
    if len(failures) > FAILURES_SHOWN:
        yield f"… and {len(failures) - FAILURES_SHOWN} more, in {REPORT}."
    for place, suite in failed:
        if not (suite.failures or suite.timed_out):
            yield f"- {place}: {suite.problem}"


def _fenced(message: str) -> str:
    """Return the end of a message as a block of code, whatever is in it."""
    lines = message.strip().splitlines()
    cut = [f"… {len(lines) - LINES_SHOWN} lines before"] if len(lines) > LINES_SHOWN else []
    longest = max(map(len, re.findall("`+", message)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence, *cut, *lines[-LINES_SHOWN:], fence])


def _inline(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
