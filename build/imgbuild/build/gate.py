"""Tag only images that are within their size budget and passed their suites."""

import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from imgbuild.build.bases import load_base
from imgbuild.build.context import BuildContext
from imgbuild.build.image_build import export_stage
from imgbuild.build.prepare import fetch_downloads
from imgbuild.build.result import BuildResult
from imgbuild.build.targets import stage_target
from imgbuild.core.errors import CheckFailedError
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY
from imgbuild.engine.client import Engine
from imgbuild.engine.types import Layer
from imgbuild.matrix.images import Image
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.container import TestTarget
from imgbuild.suites.runner import TestSession
from imgbuild.suites.session import report_on
from imgbuild.suites.store import ReportStore

#: The stage that contains only ``/libcuda.so.1``.
STUB = "driver-stub"
#: How far an image may exceed its budget, because packages in archives grow.
TOLERANCE_PERCENT = 5
#: Additional tolerance for a containerd store, which counts blocks on disk instead of bytes.
#: Measured 2026-11-22 with the images tf-1.10-cpu-debian (10.0 %) and tf-2.2-cpu-debian (8.2 %).
BLOCKS_PERCENT = 11


def image_size(history: Iterable[Layer]) -> int:
    """Return the total size of the unpacked layers in bytes.

    Docker's two image stores agree best on this number. In a containerd store, the size of an image
    also includes the packed layers.
    """
    return sum(entry.size for entry in history)


def budget_problem(size: int, budget: int | None, engine: Engine) -> str | None:
    """Return why ``size``, in bytes, exceeds the budget; None if it does not, or without budget."""
    if budget is None:
        return None
    allowed = TOLERANCE_PERCENT + (BLOCKS_PERCENT if engine.version().containerd_store else 0)
    if size * 100 <= budget * (100 + allowed):
        return None
    more = (size - budget) * 100 / budget
    return (
        f"it has {size / 1e6:.0f} MB, {more:.1f} % more than its budget of {budget / 1e6:.0f} MB; "
        f"{allowed} % is allowed. `imgbuild show --layers` has its layers. If this size is right, "
        "raise the budget in matrix.yaml"
    )


def suite_target(
    image: Image, image_id: str, context: BuildContext, reference: str | None = None
) -> TestTarget:
    """Return the test target of an image; ``reference`` is its own tag by default."""
    return TestTarget(
        name=image.name,
        image_id=image_id,
        reference=reference or image.tags[0],
        variant=image.variant,
        expected=context.expected(image),
        export_stub=partial(export_stub, image, image_id, context),
    )


def export_stub(image: Image, image_id: str, context: BuildContext, folder: Path) -> None:
    """Write the stub of the driver's library from the image's build cache into ``folder``.

    CheckFailedError: the image was not built from this checkout, or the stage fails.
    """
    stored = context.engine.inspect(image_id)
    if stored is None or stored.labels.get(INPUT_DIGEST) != context.digests[image.name].total:
        raise CheckFailedError(f"{image_id} was not built from this checkout")
    # With the same folders as in the image's build, BuildKit finds the stages in its cache.
    downloads, failed = fetch_downloads([image], context)
    for error in failed.values():
        raise error
    # Without the base in the engine, BuildKit would look for it in a registry.
    load_base(context.inputs.bases[image.base_name], context.engine)
    buildx = context.builders[0]
    target = stage_target(
        image,
        STUB,
        context.inputs,
        downloads[image.name],
        context.project,
        in_engine=buildx.builder is None,
    )
    export_stage(target, folder, context, buildx)


def test_and_tag(built: BuildResult, context: BuildContext, session: TestSession) -> BuildResult:
    """Test the image if the plan says so, and tag it if it passed.

    An image that exceeds its budget is neither tested nor tagged.
    """
    item, image_id = built.item, built.image_id or ""
    engine = context.engine
    size = image_size(engine.history(image_id))
    # Images that are built from stand-ins have no budget.
    budget = None if context.settings.standin else item.image.budget
    result = replace(built, size=size)
    if problem := budget_problem(size, budget, engine):
        return replace(result, error=CheckFailedError(problem))
    if context.options.test and item.action in {Action.BUILD, Action.TEST}:
        started = time.monotonic()
        target = suite_target(item.image, image_id, context)
        report = report_on(target, session)
        result = replace(result, report=report, test_seconds=time.monotonic() - started)
        if not report.ok:
            files = f"{context.reports / item.image.name}/report.json, pytest.txt"
            error = CheckFailedError(f"{'; '.join(report.problems)}. Report: {files}")
            return replace(result, error=error)
    _tag(item, image_id, engine, context.store)
    return replace(result, tagged=True)


def _tag(item: PlanItem, image_id: str, engine: Engine, store: ReportStore) -> None:
    """Tag the image, then remove untagged older images that this machine built.

    Images of other users of the engine stay, because their suites may still be running.
    """
    for reference in item.image.tags:
        engine.tag(image_id, reference)
    for stored in engine.images(f"{NAME}={item.image.name}"):
        same_repository = stored.labels.get(REPOSITORY) == item.image.repository
        superseded = stored.labels.get(INPUT_DIGEST) != item.digest.total
        if same_repository and superseded and not stored.tags and store.is_own(stored.id):
            engine.discard(stored.id)
