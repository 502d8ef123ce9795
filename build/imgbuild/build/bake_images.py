"""Build images in one bake, where a failed image need not stop the others; export one stage."""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from imgbuild.build.context import BuildContext
from imgbuild.build.horovod_wheels import WheelCache, wheel_key, with_wheels
from imgbuild.build.prepare import Downloads
from imgbuild.build.result import BuildResult, CancelledBuildError, concerns_all
from imgbuild.build.targets import bake_target, share_packages
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.engine.bake import BakeCancelledError, BakeTarget, BuiltImage, run_bake
from imgbuild.engine.discovery import Buildx, answers
from imgbuild.engine.failure import BuildFailedError, BuildFailure
from imgbuild.errors import MachineError
from imgbuild.plan.plan import PlanItem
from imgbuild.suites.container import place_of

#: Of the tags of BuildKit's own cache, before an image's name.
CACHE_PREFIX = "buildkit-"
#: The repository of `temporary_name`. No registry can have this name (RFC 2606, section 2).
TEMPORARY_NAMES = "local.invalid/imgbuild/temporary"


class BuilderLostError(MachineError):
    """A builder cannot be reached any more; ``left`` are the images that it has not built."""

    def __init__(self, name: str, left: Sequence[PlanItem], why: str) -> None:
        self.name, self.left = name, left
        super().__init__(
            f"The builder {name} no longer answers ({why}). `docker buildx inspect {name}` shows "
            "its nodes."
        )


@dataclass(frozen=True)
class BakeJob:
    """What all bakes of a build share; ``submit`` gets each image that is built, or its error."""

    downloads: Downloads
    wheels: WheelCache
    context: BuildContext
    submit: Callable[[BuildResult], None]


def bake_images(
    items: Sequence[PlanItem], job: BakeJob, buildx: Buildx, stopped: Callable[[], bool]
) -> None:
    """Build ``items`` in one bake; each image, or its error, is submitted as soon as it is there.

    Bake cancels the rest when one target fails. With ``keep_going`` the rest is built again without
    it (finished steps come from the cache), unless the failure concerns the whole engine.

    BuilderLostError: the builder, another than the engine's own, cannot be reached any more.
    """
    left, started = {item.image.name: item for item in items}, time.monotonic()
    host = job.context.host

    def exported(name: str, image: BuiltImage) -> None:
        if item := left.pop(name, None):
            seconds = image.seconds
            took = time.monotonic() - started if seconds is None else seconds
            built = BuildResult(item, image.image_id, build_seconds=took, work_seconds=image.work)
            job.submit(replace(built, builder=buildx.builder))

    while left:
        names = [*left]
        try:
            built = _bake([*left.values()], job, buildx, exported, stopped)
            for name in names:
                exported(name, built[name])
        except BakeCancelledError as error:
            _require(buildx, host, left.values(), "in the middle of a build")
            for name in [*left]:
                job.submit(BuildResult(left.pop(name), error=CancelledBuildError(str(error))))
        except BuildFailedError as error:
            said = f"{error.failure.error}; the whole output is in {error.failure.log}"
            _require(buildx, host, left.values(), said)
            seconds = time.monotonic() - started
            failure = _of_images(error.failure, names)
            goes_on = job.context.options.keep_going and not concerns_all(error)
            failed = type(error)(failure)
            cancelled = CancelledBuildError(f"cancelled, since {', '.join(failure.failed)} failed")
            faulty = left.keys() & failure.failed  # none, where it failed after its export
            for name in faulty if goes_on else [*left]:
                own = failed if name in (faulty or left) else cancelled
                job.submit(BuildResult(left.pop(name), build_seconds=seconds, error=own))


def _require(buildx: Buildx, host: str | None, left: Iterable[PlanItem], why: str) -> None:
    """Return if the builder can still be reached; BuilderLostError with ``why`` if not."""
    if buildx.builder and not answers(buildx, host):
        raise BuilderLostError(buildx.builder, [*left], why)


@contextmanager
def temporary_name(image_id: str, context: BuildContext) -> Iterator[str]:
    """Give an image a name of its own during the block, by which nothing can be pulled.

    BuildKit takes no id, and another name can move to another image meanwhile.
    """
    name = f"{TEMPORARY_NAMES}:{place_of(context.state)}-{secrets.token_hex(6)}"
    context.engine.tag(image_id, name)
    try:
        yield name
    finally:
        context.engine.untag(name)


def export_stage(
    target: BakeTarget,
    folder: Path,
    context: BuildContext,
    buildx: Buildx | None = None,
    *,
    shown: bool = False,
) -> None:
    """Write the files of a stage into ``folder``; the display follows it if ``shown``.

    ``buildx`` has the builder, by default the engine's own.

    CheckFailedError: the stage cannot be built.
    MachineError: this machine cannot build.
    """
    run_bake(
        buildx or context.buildx,
        context.host,
        [replace(target, output=f"type=local,dest={folder}")],
        log=context.log_path(f"{target.name}-{target.target}"),
        listener=context.display.on_event if shown else lambda _: None,
    )


def _bake(
    items: Sequence[PlanItem],
    job: BakeJob,
    buildx: Buildx,
    exported: Callable[[str, BuiltImage], None],
    stopped: Callable[[], bool],
) -> Mapping[str, BuiltImage]:
    context, images = job.context, [item.image for item in items]
    inputs, project, revision = context.inputs, context.project, context.revision
    own = [
        bake_target(
            item,
            inputs,
            job.downloads[item.image.name],
            project,
            revision,
            in_engine=buildx.builder is None,
        )
        for item in items
    ]
    if repository := context.options.buildkit_cache:
        own = [replace(one, cache=f"{repository}:{CACHE_PREFIX}{one.name}") for one in own]
    stacks = {image.name: image.stack for image in images}
    keys = {image.name: wheel_key(image, project, inputs) for image in images}
    what = images[0].name if len(images) == 1 else f"{len(images)}-images"
    with with_wheels(share_packages(own, stacks), keys, job.wheels) as targets:
        return run_bake(
            buildx,
            context.host,
            targets,
            log=context.log_path(what),
            listener=context.display.on_event,
            epoch=epoch_seconds(images[0]),
            exported=exported,
            stopped=stopped,
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
