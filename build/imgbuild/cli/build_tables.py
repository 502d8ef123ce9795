"""What ``imgbuild build`` prints at the end."""

from collections.abc import Sequence

from imgbuild.building.outcome import Outcome
from imgbuild.cli.plan_table import idle_line
from imgbuild.cli.text_table import aligned
from imgbuild.engine.display import clock_time
from imgbuild.plan.plan import Action
from imgbuild.suites.report import Found, Report, SuiteResult


def outcome_lines(outcomes: Sequence[Outcome], planned: int) -> str:
    """Return the table of a finished build."""
    if all(o.item.action is Action.NOTHING for o in outcomes) and len(outcomes) == planned:
        return idle_line([outcome.item for outcome in outcomes])
    header = ("image", "state", "size", "build", "test", "suites")
    rows = [header, *(_row(outcome) for outcome in outcomes)]
    lines = aligned(rows)
    lines += [line for o in outcomes if o.report for line in reasons(o.report)]
    if len(outcomes) < planned:
        lines.append(f"{planned - len(outcomes)} images were not begun (--keep-going begins them).")
    return "\n".join(lines)


def _row(outcome: Outcome) -> tuple[str, ...]:
    return (
        outcome.item.image.name,
        outcome.state,
        f"{outcome.size / 1e6:.0f} MB" if outcome.size else "",
        clock_time(outcome.build_seconds) if outcome.build_seconds else "",
        clock_time(outcome.test_seconds) if outcome.test_seconds else "",
        _suites(outcome.report),
    )


def _suites(report: Report | None) -> str:
    if report is None:
        return ""
    return ", ".join(f"{suite.suite} {said(suite)}" for suite in report.suites)


def said(suite: SuiteResult) -> str:
    """Return what a table says of a suite; a failure must be found in a long line."""
    return "FAILED" if suite.found is Found.FAILED else str(suite.found)


def reasons(report: Report) -> list[str]:
    """Return one line a reason for which checks were skipped."""
    return [
        f"{report.image}: {suite.suite}: {count} skipped: {reason}"
        for suite in report.suites
        for reason, count in suite.reasons.items()
    ]
