"""The results of a test run as Markdown, for ``$GITHUB_STEP_SUMMARY`` and to read as text."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from imgbuild.suites.results import Report, SuiteResult, Verdict, left_out

#: How many lines of one failure are shown; the rest is in ``report.json`` and ``junit.xml``.
LINES_SHOWN = 30
#: GitHub refuses a summary of more than 1 MiB; so many failures are shown in full.
FAILURES_SHOWN = 100

_SIGNS = {
    Verdict.PASSED: "✅",
    Verdict.FAILED: "❌",
    Verdict.INCOMPLETE: "⚠️",
    Verdict.SKIPPED: "⏭️",
    Verdict.NOT_ASKED: "❔",
}


def summary(reports: Sequence[Report], errors: Mapping[str, str] | None = None) -> str:
    """Return a table of suites by images, then failures, skips, and checks that were left out.

    ``errors`` are, by image, why one could not be tested.
    """
    errors = errors or {}
    total = len(reports) + len(errors)
    images = "1 image" if total == 1 else f"{total} images"
    good = sum(report.ok for report in reports)
    parts = [
        f"## imgbuild test: {good} of {images} passed",
        _table(reports),
        *_section("Not tested", (f"`{i}`: {_inline(text)}" for i, text in errors.items())),
        *_failures(reports),
        *_section("Skipped", _skips(reports)),
        *_section("Left out", _left_out(reports)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    items = [f"- {line}" for line in lines]
    return [f"### {title}", "\n".join(items)] if items else []


def _table(reports: Sequence[Report]) -> str:
    """Return a row a suite and a column an image."""
    if not reports:
        return ""
    suites = list(dict.fromkeys(s.suite for report in reports for s in report.suites))
    by_image = [{suite.suite: suite for suite in report.suites} for report in reports]
    rows = [
        ["suite", *(f"`{report.image}`" for report in reports)],
        ["---"] * (len(reports) + 1),
        *([f"`{name}`", *(_cell(found.get(name)) for found in by_image)] for name in suites),
        ["**all**", *(_total(report) for report in reports)],
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(suite: SuiteResult | None) -> str:
    """Return verdict, checks and seconds: ``✅ passed, 14 checks, 2.4 s``."""
    if suite is None:
        return ""
    checks = suite.passed + len(suite.failures)
    counted = f"{checks} check{'' if checks == 1 else 's'}"
    if suite.before:
        return f"{_SIGNS[suite.verdict]} {suite.verdict} before ({suite.before}), {counted}"
    failed = f", {len(suite.failures)} failed" if suite.failures else ""
    skipped = f", {len(suite.skips)} skipped" if suite.skips else ""
    asked = f", {len(suite.not_asked)} not checked" if suite.not_asked else ""
    time = f"{suite.seconds:.1f} s"
    return f"{_SIGNS[suite.verdict]} {suite.verdict}, {counted}{failed}{skipped}{asked}, {time}"


def _total(report: Report) -> str:
    return f"{_SIGNS[report.verdict]} **{report.verdict}**, {report.seconds:.0f} s"


def _failures(reports: Sequence[Report]) -> Iterator[str]:
    suites = [
        (f"`{report.image}` {suite.suite}", suite) for report in reports for suite in report.suites
    ]
    failures = [
        (f"{place}: `{failure.test}`", failure.message)
        for place, suite in suites
        for failure in suite.failures
    ]
    if failures:
        yield "### Failures"
    for title, message in failures[:FAILURES_SHOWN]:
        yield f"{title}\n\n{_fenced(message)}"
    if len(failures) > FAILURES_SHOWN:
        yield f"… and {len(failures) - FAILURES_SHOWN} more, in report.json."
    for place, suite in suites:
        if suite.verdict is Verdict.FAILED and not suite.failures:
            yield f"- {place}: no check was made"


def _skips(reports: Sequence[Report]) -> Iterator[str]:
    for report in reports:
        for suite in report.suites:
            for reason, count in suite.reasons.items():
                yield f"`{report.image}` {suite.suite}: {count} skipped: {_inline(reason)}"


def _left_out(reports: Sequence[Report]) -> Iterator[str]:
    for report in reports:
        for names, why in left_out(report):
            yield f"`{report.image}`: {why}: {', '.join(names)}"


def _fenced(message: str) -> str:
    """Return the end of a message as a block of code, whatever is in it."""
    lines = message.strip().splitlines()
    shown = lines[-LINES_SHOWN:]
    cut = [f"… {len(lines) - len(shown)} lines before"] if len(shown) < len(lines) else []
    longest = max((len(run) for run in re.findall("`+", message)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence, *cut, *shown, fence])


def _inline(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
