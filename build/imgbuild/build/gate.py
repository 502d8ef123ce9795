"""The gate: an image gets its name when its suites have passed, and not before."""

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from imgbuild.build.outcome import Outcome
from imgbuild.build.stub import export_stub
from imgbuild.build.workshop import Workshop
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY
from imgbuild.matrix.images import Image
from imgbuild.plan.ownership import is_own
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.sizes.budget import over_budget
from imgbuild.sizes.measure import measure
from imgbuild.sizes.store import size_store
from imgbuild.suites import container
from imgbuild.suites.container import TestTarget
from imgbuild.suites.results import Report, SuiteResult
from imgbuild.suites.session import TestOptions, TestSession


def examine(
    image: Image, image_id: str, workshop: Workshop, how: TestOptions | None = None
) -> Report:
    """Return what the suites find in an image, all of them by default."""
    return test_session(workshop).test(target_of(image, image_id, workshop), how or TestOptions())


def test_session(workshop: Workshop) -> TestSession:
    """Return the session that tests the images of a workshop."""
    return TestSession(
        workshop.project,
        workshop.engine,
        workshop.host,
        workshop.store,
        workshop.reports,
        workshop.display.on_event,
    )


def target_of(
    image: Image, image_id: str, workshop: Workshop, reference: str | None = None
) -> TestTarget:
    """Return an image of the matrix as what is tested, under ``reference`` or its own name.

    Raises:
        InputError: the image's lock is missing or damaged.

    """
    return TestTarget(
        image.name,
        image_id,
        reference or workshop.own(image).tags[0],
        image.variant,
        workshop.expected(image),
        export_stub=partial(export_stub, image, image_id, workshop),
    )


def pass_gate(
    item: PlanItem, image_id: str, workshop: Workshop, *, test: bool, how: TestOptions | None = None
) -> Outcome:
    """Test the image if that is wanted and not done yet, then name it if it passed.

    An image that is larger than its budget is not tested, and gets no name.
    """
    report, seconds = None, 0.0
    size = _size(item.image, image_id, workshop)
    excess = None if workshop.standin else over_budget(item.image, size)
    if excess:
        return Outcome(item, image_id, size, error=excess)
    if test and item.action in {Action.BUILD, Action.TEST}:
        started = time.monotonic()
        report = examine(item.image, image_id, workshop, how)
        seconds = time.monotonic() - started
    passed = report is None or report.ok
    if passed:
        _name(item, image_id, workshop)
    return Outcome(
        item,
        image_id,
        size,
        test_seconds=seconds,
        report=report,
        named=passed,
        error=None if passed else _verdict(report, workshop.reports / item.image.name),
    )


def _size(image: Image, image_id: str, workshop: Workshop) -> int:
    """Return an image's bytes, as the engine says them unless a budget is compared with them.

    What engines that keep images in containerd call the size has the packed layers in it too.
    """
    if image.budget is not None and workshop.engine.version().containerd_store:
        return measure(image_id, image.name, workshop.engine, size_store(workshop.cache)).size
    stored = workshop.engine.inspect(image_id)
    return stored.size if stored else 0


def _name(item: PlanItem, image_id: str, workshop: Workshop) -> None:
    """Give the image its names, then remove its predecessors that have none any more.

    One that has just lost its name is such, and one that was this machine's to test. Another may
    wait for the suites of somebody who shares the engine.
    """
    label, engine = f"{NAME}={item.image.name}", workshop.engine
    named = {one.id for one in engine.images(label) if one.tags}
    for reference in item.image.tags:
        engine.tag(image_id, reference)
    for other in engine.images(label):
        ours = other.labels.get(REPOSITORY) == item.image.repository
        superseded = other.labels.get(INPUT_DIGEST) != item.digest.total
        mine = other.id in named or workshop.store.knows(other.id)
        if ours and mine and superseded and not other.tags and is_own(other, engine.history):
            engine.discard(other.id)


def _verdict(report: Report | None, folder: Path) -> str:
    suites = report.suites if report else ()
    failed = [f"{s.suite}: {f.test}" for s in suites for f in s.failures]
    undone = [f"{s.suite}: {undone_of(s)}" for s in suites if not s.ok and not s.failures]
    return f"{'; '.join([*failed, *undone])}. Report: {folder}/report.json, pytest.txt"


def undone_of(suite: SuiteResult) -> str:
    """Return why a suite without failures has not passed."""
    reasons = [f"{count} skipped: {reason}" for reason, count in suite.reasons.items()]
    return ", ".join(reasons) or "nothing was checked"


def remove_leftovers(images: Iterable[Image], workshop: Workshop) -> None:
    """Remove what killed test runs left; the image locks must be held."""
    container.remove_leftovers([image.name for image in images], workshop.engine)
