"""What ``imgbuild build`` prints at the end."""

from collections.abc import Sequence

from imgbuild.building.outcome import Outcome
from imgbuild.cli.text_table import aligned
from imgbuild.engine.display import clock_time
from imgbuild.matrix.image import Image
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.report import Found, Report, SuiteResult


def plan_lines(items: Sequence[PlanItem]) -> str:
    """Return one line an image: what would be done, and why."""
    width = max(len(item.image.name) for item in items)
    lines = [f"{item.image.name:<{width}}  {item.action:<7}  {item.reason}" for item in items]
    busy = sum(1 for item in items if item.action is not Action.NOTHING)
    lines.append(f"Something to do for {busy} of {len(items)}." if busy else _idle(items))
    return "\n".join(lines)


def outcome_lines(outcomes: Sequence[Outcome], planned: int) -> str:
    """Return the table of a finished build."""
    if all(o.item.action is Action.NOTHING for o in outcomes) and len(outcomes) == planned:
        return _idle([outcome.item for outcome in outcomes])
    header = ("image", "state", "size", "build", "test", "suites")
    rows = [header, *(_row(outcome) for outcome in outcomes)]
    lines = aligned(rows)
    lines += [line for o in outcomes if o.report for line in reasons(o.report)]
    if len(outcomes) < planned:
        lines.append(f"{planned - len(outcomes)} images were not begun (--keep-going begins them).")
    return "\n".join(lines)


def usage_lines(image: Image, host: str | None) -> str:
    """Return how to use the image: a shell, two ranks, TensorBoard."""
    client = f"docker -H {host}" if host and host != "unix:///var/run/docker.sock" else "docker"
    name = image.tags[0]
    run = f"{client} run --rm{_run_options(image)}"
    ranks = "-np 2 --oversubscribe" if image.mpi.flavour == "openmpi" else "-np 2"
    return f"""
Use it:
  {run} -it -v "$PWD:/work" -w /work {name} python train.py
  {run} -v "$PWD:/work" -w /work {name} mpirun {ranks} python train.py
  {run} -p 6006:6006 -v "$PWD/logs:/logs" {name} \\
      tensorboard --logdir /logs --host 0.0.0.0     then open http://localhost:6006"""


def _run_options(image: Image) -> str:
    """Return what a container needs beside."""
    return " --gpus all" if image.variant == "gpu" else ""


def _idle(items: Sequence[PlanItem]) -> str:
    names = ", ".join(item.image.tags[0] for item in items)
    count = "1 image is" if len(items) == 1 else f"{len(items)} images are"
    return f"Nothing to do: {count} up to date ({names})."


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
