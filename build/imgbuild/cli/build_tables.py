"""What ``imgbuild build`` prints at the end."""

from collections import Counter
from collections.abc import Sequence

from imgbuild.build.blame import Blame
from imgbuild.build.lines import clock_time
from imgbuild.build.outcome import Outcome
from imgbuild.cli.plan_table import idle_line
from imgbuild.plan.plan import Action
from imgbuild.suites.results import Report, SuiteResult, Verdict
from imgbuild.text import aligned

#: Of more images, the table says of suites only which failed, and how many passed.
BRIEF = 3


def outcome_lines(outcomes: Sequence[Outcome], planned: int, *, stopped: bool = False) -> str:
    """Return the table of a finished build: what was done for each image, and how it ended.

    ``stopped`` is that it ended for a reason that would have ended it with --keep-going too.
    """
    if all(o.item.action is Action.NOTHING for o in outcomes) and len(outcomes) == planned:
        return idle_line([outcome.item for outcome in outcomes])
    header = ("image", "verdict", "done", "time", "size", "suites")
    brief = len(outcomes) > BRIEF
    rows = [header, *(_row(outcome, brief=brief) for outcome in outcomes)]
    lines = aligned(rows)
    lines += [line for o in outcomes if o.report for line in reasons(o.report)]
    if planned > 1:
        lines.append(_totals(outcomes))
    if len(outcomes) < planned:
        stopped = stopped or any(outcome.blame is Blame.ALL for outcome in outcomes)
        hint = "" if stopped else " (--keep-going begins them)"
        lines.append(f"{planned - len(outcomes)} images were not begun{hint}.")
    return "\n".join(lines)


def _row(outcome: Outcome, *, brief: bool) -> tuple[str, ...]:
    times = [seconds for seconds in (outcome.build_seconds, outcome.test_seconds) if seconds]
    return (
        outcome.item.image.name,
        _verdict(outcome),
        _done(outcome),
        " + ".join(map(clock_time, times)),
        f"{outcome.size / 1e6:.0f} MB" if outcome.size else "",
        _suites_in_brief(outcome.report) if brief else _suites(outcome.report),
    )


def _verdict(outcome: Outcome) -> str:
    return "named" if outcome.state == "done" else outcome.state


def _done(outcome: Outcome) -> str:
    """Return what was done in this build, whether it led to a name or not."""
    built = outcome.item.action is Action.BUILD and outcome.image_id is not None
    words = [*(["built"] if built else []), *(["tested"] if outcome.report else [])]
    if outcome.item.action is Action.NAME and outcome.named:
        words.append("named")
    return ", ".join(words)


def _totals(outcomes: Sequence[Outcome]) -> str:
    """Return ``12 images: 10 named, 1 up to date, 1 failed.``."""
    counts = Counter(map(_verdict, outcomes))
    return f"{len(outcomes)} images: {', '.join(f'{n} {word}' for word, n in counts.items())}."


def _suites(report: Report | None) -> str:
    if report is None:
        return ""
    return ", ".join(f"{suite.suite} {said(suite)}" for suite in report.suites)


def _suites_in_brief(report: Report | None) -> str:
    """Return which suites failed, and how many ended otherwise: ``horovod FAILED, 12 passed``."""
    if report is None:
        return ""
    failed = [f"{suite.suite} FAILED" for suite in report.suites if suite.verdict is Verdict.FAILED]
    others = Counter(
        str(suite.verdict) for suite in report.suites if suite.verdict is not Verdict.FAILED
    )
    return ", ".join([*failed, *(f"{count} {word}" for word, count in others.items())])


def failure_lines(failed: Sequence[Outcome]) -> list[str]:
    """Return why images have no name: one paragraph a reason, with all that it stopped."""
    names: dict[str, list[str]] = {}
    for outcome in failed:
        names.setdefault(outcome.error or "", []).append(outcome.item.image.name)
    return [
        f"{', '.join(of)} {'has' if len(of) == 1 else 'have'} no name: {error}"
        for error, of in names.items()
    ]


def said(suite: SuiteResult) -> str:
    """Return what a table says of a suite; a failure must be found in a long line."""
    return "FAILED" if suite.verdict is Verdict.FAILED else str(suite.verdict)


def reasons(report: Report) -> list[str]:
    """Return one line a reason for which checks were skipped."""
    return [
        f"{report.image}: {suite.suite}: {count} skipped: {reason}"
        for suite in report.suites
        for reason, count in suite.reasons.items()
    ]
