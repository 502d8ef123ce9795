"""Build images in one bake, where a failed image need not stop the others; export one stage."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from imgbuild.build.context import BuildContext
from imgbuild.build.horovod_wheels import WheelCache, wheel_key, with_wheels
from imgbuild.build.prepare import Downloads
from imgbuild.build.result import BuildResult, CancelledBuildError, concerns_all
from imgbuild.build.targets import bake_target, share_packages
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.engine.bake import BakeTarget, BuiltImage, run_bake
from imgbuild.engine.failure import BuildFailedError, BuildFailure
from imgbuild.matrix.images import Image
from imgbuild.plan.plan import Action, PlanItem


def bake_images(
    items: Sequence[PlanItem],
    downloads: Downloads,
    wheels: WheelCache,
    context: BuildContext,
    submit: Callable[[BuildResult], None],
) -> None:
    """Build ``items`` in one bake; ``submit`` gets each image as soon as it is built, or its error.

    Bake cancels the rest when one target fails. With ``keep_going`` the rest is built again without
    it (finished steps come from the cache), unless the failure concerns the whole engine.
    """
    left, started = {item.image.name: item for item in items}, time.monotonic()

    def exported(name: str, image: BuiltImage) -> None:
        if item := left.pop(name, None):
            seconds = image.seconds
            took = time.monotonic() - started if seconds is None else seconds
            built = BuildResult(item, image.image_id, build_seconds=took, work_seconds=image.work)
            submit(built)

    while left:
        names = [*left]
        try:
            built = _bake([*left.values()], downloads, wheels, context, exported)
            for name in names:
                exported(name, built[name])
        except BuildFailedError as error:
            seconds = time.monotonic() - started
            failure = _of_images(error.failure, names)
            goes_on = context.options.keep_going and not concerns_all(error)
            failed = type(error)(failure)
            cancelled = CancelledBuildError(f"cancelled, since {', '.join(failure.failed)} failed")
            faulty = left.keys() & failure.failed  # none, where it failed after its export
            for name in faulty if goes_on else [*left]:
                own = failed if name in (faulty or left) else cancelled
                submit(BuildResult(left.pop(name), build_seconds=seconds, error=own))


def stage_target(
    image: Image, stage: str, downloads: Mapping[str, Path], context: BuildContext
) -> BakeTarget:
    item = PlanItem(image, context.digests[image.name], Action.BUILD, "")
    target = bake_target(item, context.inputs, downloads, context.project, context.revision)
    return replace(target, target=stage, labels={})


def export_stage(
    target: BakeTarget, folder: Path, context: BuildContext, *, shown: bool = False
) -> None:
    """Write the files of a stage into ``folder``; the display follows it if ``shown``.

    CheckFailedError: the stage cannot be built.
    MachineError: this machine cannot build.
    """
    run_bake(
        context.buildx,
        context.host,
        [replace(target, output=f"type=local,dest={folder}")],
        log=log_path(f"{target.name}-{target.target}", context),
        listener=context.display.on_event if shown else lambda _: None,
    )


def log_path(name: str, context: BuildContext) -> Path:
    return context.state / "logs" / f"{time.strftime('%Y%m%dT%H%M%S')}-{name}.log"


def _bake(
    items: Sequence[PlanItem],
    downloads: Downloads,
    wheels: WheelCache,
    context: BuildContext,
    exported: Callable[[str, BuiltImage], None],
) -> Mapping[str, BuiltImage]:
    stacks = {item.image.name: item.image.stack for item in items}
    images = [item.image for item in items]
    own = [
        bake_target(
            item, context.inputs, downloads[item.image.name], context.project, context.revision
        )
        for item in items
    ]
    keys = {image.name: wheel_key(image, context.project, context.inputs) for image in images}
    with with_wheels(share_packages(own, stacks), keys, wheels) as targets:
        return run_bake(
            context.buildx,
            context.host,
            targets,
            log=log_path(images[0].name if len(items) == 1 else f"{len(items)}-images", context),
            listener=context.display.on_event,
            epoch=epoch_seconds(images[0]),
            exported=exported,
        )


def _of_images(failure: BuildFailure, names: Sequence[str]) -> BuildFailure:
    """Return the failure in terms of images; a target beside one has its name as a prefix."""
    found = {
        max((name for name in names if target.startswith(name)), key=len, default="")
        for target in failure.failed
    }
    found = found - {""} or {names[0]}
    cancelled = tuple(one for one in failure.cancelled if one in {*names} - found)
    return replace(failure, failed=tuple(sorted(found)), cancelled=cancelled)
