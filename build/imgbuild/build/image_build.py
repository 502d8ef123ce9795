"""Build one image, and export one stage."""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock

from imgbuild.build.context import BuildContext
from imgbuild.build.horovod_wheels import STAGE, find_wheel, keep_wheel, wheel_key
from imgbuild.build.result import BuildResult
from imgbuild.build.targets import image_target
from imgbuild.core.events import ImageState, Phase
from imgbuild.core.files import work_folder
from imgbuild.core.text import clock_time
from imgbuild.core.user_folders import cache_dir
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.engine.build import BuildTarget, build_image, export_files
from imgbuild.engine.discovery import Buildx
from imgbuild.engine.steps import Step
from imgbuild.plan.plan import PlanItem
from imgbuild.suites.container import machine_digest

#: Tags of BuildKit's own cache begin with it; the image's name follows.
CACHE_PREFIX = "buildkit-"
#: The repository of `temporary_name`. No registry can have this name (RFC 2606, section 2).
TEMPORARY_NAMES = "local.invalid/imgbuild/temporary"
#: How often a build that waits for another's wheel looks whether it is to stop, in seconds.
_LOOK_SECONDS = 0.5


def build_item(  # noqa: PLR0913 - what, of what, by whom
    item: PlanItem,
    context: BuildContext,
    buildx: Buildx,
    *,
    downloads: Mapping[str, Path],
    compilers: Mapping[str, Lock],
    stopped: Callable[[], bool],
) -> BuildResult:
    """Build the image of a plan's item, and its Horovod wheel if that is not kept.

    ``downloads`` are its folders by named context. One of several builds that need the same wheel
    compiles it: the one that holds its lock of ``compilers``, which have the wheels' keys.

    BuildFailedError: it failed.
    CancelledError: it was to stop.
    """
    image, started = item.image, time.monotonic()
    where = f"on {buildx.builder}" if buildx.builder else ""
    context.display.show_state(ImageState(image.name, Phase.BUILDING, where))

    def show(step: Step) -> None:
        context.display.show_step(image.name, step)

    target = image_target(
        item,
        context.inputs,
        downloads,
        context.project,
        context.revision,
        in_engine=buildx.builder is None,
        machine=buildx.platform,
    )
    if repository := context.options.buildkit_cache:
        target = replace(target, cache=f"{repository}:{CACHE_PREFIX}{image.name}")
    log, epoch = context.log_path(image.name), epoch_seconds(image)
    work = 0.0
    if key := wheel_key(image, context.project, context.inputs):
        lock = compilers[key]
        while not lock.acquire(timeout=_LOOK_SECONDS):
            if stopped():
                raise CancelledError(f"the build of {image.name} was stopped")
        try:
            if not find_wheel(key, cache_dir()):
                work = _compile_wheel(target, key, context, buildx, show=show, stopped=stopped)
        finally:
            lock.release()
        if folder := find_wheel(key, cache_dir()):
            target = replace(target, contexts={**target.contexts, STAGE: str(folder)})
    image_id, image_work = build_image(
        buildx, target, log=log, show=show, epoch=epoch, stopped=stopped
    )
    took = time.monotonic() - started
    context.display.show_state(ImageState(image.name, Phase.BUILT, f"in {clock_time(took)}"))
    return BuildResult(
        item,
        image_id,
        build_seconds=took,
        work_seconds=work + image_work,
        builder=buildx.builder,
    )


def _compile_wheel(  # noqa: PLR0913 - likewise
    target: BuildTarget,
    key: str,
    context: BuildContext,
    buildx: Buildx,
    *,
    show: Callable[[Step], None],
    stopped: Callable[[], bool],
) -> float:
    """Compile the Horovod wheel of an image and keep it; otherwise as `export_files`."""
    cache = f"{target.cache}-{STAGE}" if target.cache else None
    target = replace(target, target=STAGE, labels={}, cache=cache)
    with work_folder("wheels") as folder:
        work = export_files(
            buildx,
            target,
            folder,
            log=context.log_path(f"{target.name}-{STAGE}"),
            show=show,
            stopped=stopped,
        )
        for wheel in folder.glob("*.whl"):
            keep_wheel(key, wheel.read_bytes(), cache_dir())
    return work


@contextmanager
def temporary_name(image_id: str, context: BuildContext) -> Iterator[str]:
    """Give an image a name of its own during the block, by which nothing can be pulled.

    BuildKit takes no id, and another name can move to another image meanwhile.
    """
    name = f"{TEMPORARY_NAMES}:{machine_digest(context.state)}-{secrets.token_hex(6)}"
    context.engine.tag(image_id, name)
    try:
        yield name
    finally:
        context.engine.untag(name)


def export_stage(
    target: BuildTarget,
    folder: Path,
    context: BuildContext,
    buildx: Buildx | None = None,
    *,
    shown: bool = False,
) -> None:
    """Write the files of a stage into ``folder``; the display follows it if ``shown``.

    ``buildx`` has the builder, by default the engine's own.

    BuildFailedError: the stage cannot be built.
    """

    def show(step: Step) -> None:
        if shown:
            context.display.show_step(target.name, step)

    log = context.log_path(f"{target.name}-{target.target}")
    export_files(buildx or context.buildx, target, folder, log=log, show=show)
