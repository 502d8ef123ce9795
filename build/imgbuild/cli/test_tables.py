"""What ``imgbuild test`` prints."""

import json
from collections.abc import Sequence

from imgbuild.build.gate import undone_of
from imgbuild.cli.build_tables import reasons, said
from imgbuild.suites.code import Suite
from imgbuild.suites.report import NEEDS_GPU, Report, SuiteResult
from imgbuild.text import aligned


def suite_lines(suites: Sequence[Suite]) -> str:
    """Return the table of the suites: when each runs, in which images, what it needs and proves."""
    rows = [("suite", "runs", "images", "needs", "proves")]
    rows += [
        (
            suite.name,
            "on demand" if suite.on_demand else "always",
            "all" if len(suite.variants) > 1 else suite.variants[0],
            suite.needs or ("a GPU" if suite.name == NEEDS_GPU else "-"),
            suite.proves,
        )
        for suite in suites
    ]
    return "\n".join(aligned(rows))


def suite_json(suites: Sequence[Suite]) -> str:
    """Return the same for programs."""
    return json.dumps([suite.as_json() for suite in suites], indent=2)


def report_json(reports: Sequence[Report]) -> str:
    """Return the reports for programs."""
    return json.dumps([report.as_json() for report in reports], indent=2)


def report_lines(reports: Sequence[Report], not_begun: Sequence[str] = ()) -> str:
    """Return the table of a test run, one line a suite, and why checks were not made."""
    rows: list[tuple[str, ...]] = [
        ("image", "suite", "result", "passed", "failed", "skipped", "seconds")
    ]
    rows += [_row(report, suite) for report in reports for suite in report.suites]
    lines = [line for report in reports for line in [*reasons(report), *_left_out(report)]]
    if any(suite.before for report in reports for suite in report.suites):
        lines.append(
            "Suites that passed before, in this image and with this code, were not run again "
            "(--rerun runs them)."
        )
    if not_begun:
        lines.append(f"Not begun after the first failure: {', '.join(not_begun)}")
    return "\n".join([*aligned(rows), *lines])


def failure_lines(report: Report) -> str:
    """Return what failed in an image, and in which words."""
    lines = [
        f"{report.image}: {suite.suite}: {failure.test}: {failure.message.strip()}"
        for suite in report.suites
        for failure in suite.failures
    ]
    empty = [
        f"{report.image}: {suite.suite}: {undone_of(suite)}"
        for suite in report.suites
        if not suite.passed and not suite.failures
    ]
    return "\n".join([*lines, *empty])


def _row(report: Report, suite: SuiteResult) -> tuple[str, ...]:
    return (
        report.image,
        suite.suite,
        f"{suite.found} before" if suite.before else said(suite),
        str(suite.passed),
        str(len(suite.failures)),
        str(len(suite.skips)),
        "-" if suite.before else f"{suite.seconds:.1f}",
    )


def _left_out(report: Report) -> list[str]:
    lines = []
    if report.not_given:
        told = ", ".join(report.not_given)
        lines.append(f"{report.image}: not asked, for nobody said what to expect: {told}")
    if report.not_begun:
        told = ", ".join(report.not_begun)
        lines.append(f"{report.image}: not begun after the first failure: {told}")
    return lines
