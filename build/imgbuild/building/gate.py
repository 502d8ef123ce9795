"""The gate: an image gets its name when its suites have passed, and not before."""

import time
from functools import partial
from pathlib import Path

from imgbuild.building.outcome import Outcome
from imgbuild.building.stub import export_stub
from imgbuild.building.workshop import Workshop
from imgbuild.matrix.image import Image
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.render.labels import INPUT_DIGEST, NAME, REPOSITORY
from imgbuild.suites.code import choose_suites
from imgbuild.suites.container import CONTAINER_LABEL
from imgbuild.suites.report import Report, SuiteResult
from imgbuild.suites.run import SuiteRun, run_suites


def examine(
    image: Image, image_id: str, workshop: Workshop, suites: tuple[str, ...] = ()
) -> Report:
    """Run suites (all by default) in an image; a full run's verdict is remembered."""
    chosen = choose_suites(workshop.project.suites, suites, image.variant)
    workshop.display.note(image.name, "testing", ", ".join(chosen))
    run = _suite_run(image, image_id, workshop, chosen)
    report = run_suites(run, workshop.engine, workshop.host, workshop.project)
    workshop.display.note(image.name, str(report.found), ended=True)
    if chosen == choose_suites(workshop.project.suites, (), image.variant):
        workshop.store.save(report)
    return report


def _suite_run(
    image: Image, image_id: str, workshop: Workshop, chosen: tuple[str, ...]
) -> SuiteRun:
    return SuiteRun(
        image,
        image_id,
        chosen,
        workshop.reports / image.name,
        standin=workshop.standin.versions if workshop.standin else None,
        export=partial(export_stub, image, image_id, workshop),
        say=partial(workshop.display.note, image.name, "testing"),
    )


def pass_gate(item: PlanItem, image_id: str, workshop: Workshop, *, test: bool) -> Outcome:
    """Test the image if that is wanted and not done yet, then name it if it passed."""
    report, seconds = None, 0.0
    if test and item.action in {Action.BUILD, Action.TEST}:
        started = time.monotonic()
        report = examine(item.image, image_id, workshop)
        seconds = time.monotonic() - started
    passed = report is None or report.ok
    if passed:
        _name(item, image_id, workshop)
    stored = workshop.engine.inspect(image_id)
    return Outcome(
        item,
        image_id,
        stored.size if stored else 0,
        test_seconds=seconds,
        report=report,
        named=passed,
        error=None if passed else _verdict(report, workshop.reports / item.image.name),
    )


def _name(item: PlanItem, image_id: str, workshop: Workshop) -> None:
    """Give the image its names, then remove its predecessors that have none any more."""
    for reference in item.image.tags:
        workshop.engine.tag(image_id, reference)
    for other in workshop.engine.images(f"{NAME}={item.image.name}"):
        ours = other.labels.get(REPOSITORY) == item.image.repository
        superseded = other.labels.get(INPUT_DIGEST) != item.digest.total
        if ours and superseded and not other.tags:
            workshop.engine.discard(other.id)


def _verdict(report: Report | None, folder: Path) -> str:
    suites = report.suites if report else ()
    failed = [f"{s.suite}: {f.test}" for s in suites for f in s.failures]
    undone = [f"{s.suite}: {undone_of(s)}" for s in suites if not s.ok and not s.failures]
    return f"{'; '.join([*failed, *undone])}. Report: {folder}/report.json, pytest.txt"


def undone_of(suite: SuiteResult) -> str:
    """Return why a suite without failures has not passed."""
    reasons = [f"{count} skipped: {reason}" for reason, count in suite.reasons.items()]
    return ", ".join(reasons) or "nothing was checked"


def remove_leftovers(images: tuple[Image, ...], workshop: Workshop) -> None:
    """Remove test containers that a killed run left; the image locks must be held."""
    names = {image.name for image in images}
    for container in workshop.engine.containers(CONTAINER_LABEL):
        if container.labels.get(CONTAINER_LABEL) in names:
            workshop.engine.remove_container(container.id)
