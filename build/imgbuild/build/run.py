"""``imgbuild build``: make a plan and run it."""

from typing import TYPE_CHECKING

from imgbuild.build.context import BuildContext
from imgbuild.build.result import Build, BuildResult
from imgbuild.inputs.base import require_made

if TYPE_CHECKING:
    from imgbuild.build.pull import PullSource


def build_images(context: BuildContext, source: "PullSource | None" = None) -> Build:
    """Build, test and tag the images of a context that holds their locks.

    Published images with the same inputs are pulled from ``source`` instead of built. If the build
    stops early, finished images are kept.

    InputError: a lock or a Dockerfile is out of date.
    MachineError: this machine cannot build, or a base image is not made yet.
    """
    for image in context.images:
        require_made(context.inputs.bases[image.base_name], image)
    items = context.plan(test=context.options.test)
    if not source and not any(item.has_work for item in items):
        done = (BuildResult(item, item.image_id, tagged=True) for item in items)
        return Build(tuple(done), len(items))
    # This import is slow, and only a build with work needs it.
    from imgbuild.build.pipeline import run_plan  # noqa: PLC0415

    return run_plan(items, source, context)
