"""Test images: reuse earlier passes, run the other suites and write the reports."""

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from imgbuild.core.errors import ImgbuildError
from imgbuild.core.events import ImageState, Phase
from imgbuild.core.files import write_text
from imgbuild.core.outcome import Outcome
from imgbuild.core.parallel import as_completed
from imgbuild.core.text import count_text
from imgbuild.suites.catalog import choose_suites, code_digest, suite_keys
from imgbuild.suites.container import TestTarget, gpu_fingerprint
from imgbuild.suites.results import Report, SuiteResult
from imgbuild.suites.runner import JUNIT, TestSession, folder_name, run_suites

REPORT, SUMMARY = "report.json", "summary.md"
#: Maximum lines per failure in the summary; ``report.json`` and ``junit.xml`` have all lines.
LINES_SHOWN = 30
#: Maximum failures in the summary, because GitHub rejects a summary of more than 1 MiB.
FAILURES_SHOWN = 100
_SIGNS: Mapping[str, str] = {
    Outcome.PASSED: "✅",
    Outcome.FAILED: "❌",
    Outcome.TIMED_OUT: "⏱️",
    Outcome.INCOMPLETE: "⚠️",
    Outcome.SKIPPED: "⏭️",
}


def report_on(target: TestTarget, session: TestSession) -> Report:
    """Test an image, store the results and write its report.

    InputError: the image does not have a named suite. Other errors are those of `run_suites`.
    """
    suites = choose_suites(session.project.suites, session.suites, target.expected)
    keys = suite_keys(suites, target.expected)
    gpus = gpu_fingerprint(session.engine) if target.variant == "gpu" else None
    known = {} if session.rerun else session.store.passed(target.image_id, keys, gpus=gpus)
    todo = tuple(suite for suite in keys if suite not in known)
    texts = [", ".join(todo)] if todo else []
    if known:
        texts.append(f"not run again: {', '.join(sorted(known))}")
    text = "; ".join(texts)
    session.listener(ImageState(target.name, Phase.TESTING, text))
    folder = session.reports / folder_name(target.name)
    (folder / JUNIT).unlink(missing_ok=True)
    code = code_digest(session.project.suites)
    fresh = Report(image=target.name, image_id=target.image_id, code_digest=code, suites=())
    if todo:
        fresh = run_suites(target, todo, session)
    session.store.save(target.image_id, keys, fresh.suites, gpus=gpus)
    results = {**known, **{result.suite: result for result in fresh.suites}}
    report = replace(
        fresh,
        gpus=gpus is not None,
        suites=tuple(results[suite] for suite in keys if suite in results),
        reference=target.reference,
    )
    session.listener(ImageState(target.name, report.verdict))
    write_text(folder / REPORT, json.dumps(report.as_json(), indent=2) + "\n")
    write_text(folder / SUMMARY, render_summary([report], {}))
    return report


def run_targets(
    targets: Sequence[TestTarget], session: TestSession, jobs: int
) -> tuple[list[Report], dict[str, ImgbuildError], list[str]]:
    """Test images with ``jobs`` suites in parallel; write a common ``report.json`` and summary.

    Return the reports, the errors of images without a report, and the images that did not start
    because an earlier failure ended the run. All are in the order of the targets.

    After an interrupt, pytest removes what its suites started, then the containers are removed.
    """

    def test_target(target: TestTarget) -> Report | ImgbuildError:
        try:
            return report_on(target, session)
        except ImgbuildError as error:
            return error

    def may_continue(outcome: Report | ImgbuildError) -> bool:
        bad = {Outcome.FAILED, Outcome.TIMED_OUT}
        passed = isinstance(outcome, Report) and outcome.verdict not in bad
        return passed or not session.fail_fast

    session = replace(session, slots=threading.Semaphore(jobs))
    stop = session.stop.set
    done = as_completed(test_target, targets, jobs, goes_on=may_continue, stop=stop, grace=None)
    outcomes = {target.name: outcome for target, outcome in done}
    reports: list[Report] = []
    errors: dict[str, ImgbuildError] = {}
    not_begun: list[str] = []
    for target in targets:
        match outcomes.get(target.name):
            case Report() as report:
                reports.append(report)
            case ImgbuildError() as error:
                errors[target.name] = error
            case None:
                not_begun.append(target.name)
    text = json.dumps([report.as_json() for report in reports], indent=2)
    write_text(session.reports / REPORT, f"{text}\n")
    write_text(session.reports / SUMMARY, render_summary(reports, errors))
    return reports, errors, not_begun


def render_summary(reports: Sequence[Report], errors: Mapping[str, ImgbuildError]) -> str:
    """Return Markdown for ``$GITHUB_STEP_SUMMARY``: a table of suites and images, then failures.

    ``errors`` maps images that could not be tested to their errors.
    """
    total = count_text(len(reports) + len(errors), "image")
    passed = sum(report.ok for report in reports)
    parts = [f"## imgbuild test: {passed} of {total} passed"]
    if reports:
        parts.append(_table(reports))
    if errors:
        lines = [f"- `{name}`: {_inline(str(error))}" for name, error in errors.items()]
        parts += ["### Not tested", "\n".join(lines)]
    parts += _failures(reports)
    notes = []
    for report in reports:
        notes += [f"- `{report.image}`: {_inline(note)}" for note in report.notes]
    if notes:
        parts += ["### Not checked", "\n".join(notes)]
    return "\n\n".join(parts) + "\n"


def _table(reports: Sequence[Report]) -> str:
    """Return a table with a row per suite and a column per image."""
    results: dict[str, dict[str, SuiteResult]] = {}  # by suite and image
    for report in reports:
        for result in report.suites:
            results.setdefault(result.suite, {})[report.image] = result
    images = [report.image for report in reports]
    rows = [["suite", *(f"`{image}`" for image in images)], ["---"] * (len(images) + 1)]
    for suite, by_image in results.items():
        rows.append([f"`{suite}`", *(_cell(by_image.get(image)) for image in images)])
    rows.append(["**all**", *map(_last_cell, reports)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _last_cell(report: Report) -> str:
    return f"{_SIGNS[report.verdict]} **{report.verdict}**, {report.seconds:.0f} s"


def _cell(result: SuiteResult | None) -> str:
    """Return verdict, number of checks and time: ``✅ passed, 14 checks, 2.4 s``."""
    if result is None:
        return ""
    verdict = f"{_SIGNS[result.verdict]} {result.verdict}"
    made = count_text(result.passed + len(result.failures) + len(result.timed_out), "check")
    if result.before:
        return f"{verdict} before ({result.before}), {made}"
    others = {
        "failed": result.failures,
        "timed out": result.timed_out,
        "skipped": result.skipped,
    }
    counts = [f"{len(checks)} {word}" for word, checks in others.items() if checks]
    return ", ".join([verdict, made, *counts, f"{result.seconds:.1f} s"])


def _failures(reports: Sequence[Report]) -> Iterator[str]:
    """Yield the failed checks, then the suites that failed without a failed check."""
    failures, others = [], []
    for report in reports:
        for result in report.suites:
            place = f"`{report.image}` {result.suite}"
            checks = (*result.failures, *result.timed_out)
            failures += [f"{place}: `{check.test}`\n\n{_fence(check.message)}" for check in checks]
            if result.verdict == Outcome.FAILED and not checks:
                others.append(f"- {place}: {result.problem}")
    if failures or others:
        yield "### Failures"
    yield from failures[:FAILURES_SHOWN]
    if len(failures) > FAILURES_SHOWN:
        yield f"… and {len(failures) - FAILURES_SHOWN} more, in {REPORT}."
    yield from others


def _fence(message: str) -> str:
    """Return the last lines of a message as a code block with a fence that fits any text."""
    lines = message.strip().splitlines()
    cut = [f"… {len(lines) - LINES_SHOWN} lines before"] if len(lines) > LINES_SHOWN else []
    longest = max(map(len, re.findall("`+", message)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence, *cut, *lines[-LINES_SHOWN:], fence])


def _inline(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
