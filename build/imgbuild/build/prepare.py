"""Before images are built: see that the disk has space, fetch downloads, provide base images."""

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from imgbuild.build.bases import provide_base, require_whole
from imgbuild.build.context import BuildContext
from imgbuild.core.errors import ImgbuildError, InputError, MachineError
from imgbuild.core.sources import Source
from imgbuild.core.text import count_text
from imgbuild.core.user_folders import cache_dir
from imgbuild.engine.client import Engine
from imgbuild.inputs.base import Base
from imgbuild.inputs.build_inputs import resolve_base
from imgbuild.inputs.download import prepare_downloads, show_progress
from imgbuild.matrix.images import Image, all_images
from imgbuild.net.sites import Sites

#: Folders by named context, by image.
Downloads = dict[str, Mapping[str, Path]]
#: Why images cannot be built, by image.
Failures = dict[str, ImgbuildError]
GIB = 1 << 30
#: With less than this free, a failure may well come from the full disk.
SCARCE = 256 << 20
_FREE_SOME = (
    "Free space, for example with `imgbuild clean`, `docker image prune` and `docker builder prune`"
)


def require_disk_space(images: Sequence[Image], engine: Engine) -> None:
    """Raise unless the engine's data folder has space for the images, as far as it can be seen."""
    folder, free = _find_data_folder(engine)
    needed = needed_bytes(images)
    if free is not None and free < needed:
        raise MachineError(
            f"{free / 1e9:.1f} GB are free in the engine's data folder {folder}; at least "
            f"{needed / 1e9:.1f} GB must be to build {count_text(len(images), 'image')}. "
            f"{_FREE_SOME}; nothing was started."
        )


def _find_data_folder(engine: Engine) -> tuple[Path, int | None]:
    """Return the engine's data folder and its free bytes; None if it is on another machine."""
    folder = Path(engine.version().root_dir)
    return folder, shutil.disk_usage(folder).free if folder.is_dir() else None


def needed_bytes(images: Sequence[Image] = ()) -> int:
    """Return how many bytes must be free to build the images; without any, for one image.

    The first of a system and variant needs 2 GiB: an image is about 1 GB, its stages as much again.
    Another adds half a GiB (measured: 29 images and their build cache took 12.3 GB). 6 GiB do for
    any number, since most steps of a large build are usually cached and each tagged image takes the
    place of its predecessor. 2 GiB more are for the engine itself.
    """
    first = len({(image.os_name, image.variant) for image in images}) or 1
    others = max(len(images) - first, 0)
    return min(first * 4 + others, 12) * GIB // 2 + 2 * GIB


def full_disk(engine: Engine) -> str:
    """Return the message that the engine's disk is full, or nothing.

    Programs report it in many ways ("I/O error", a container that does not start), the disk in one.
    """
    try:
        folder, free = _find_data_folder(engine)
    except MachineError:  # the engine was lost, which is reported already
        return ""
    if free is None or free >= SCARCE:
        return ""
    return (
        f"The engine's disk is full: {free / (1 << 20):.0f} MB are free in {folder}. {_FREE_SOME}, "
        "and build again: finished steps are kept."
    )


def prepare(images: Sequence[Image], context: BuildContext) -> tuple[Downloads, Failures]:
    """Give the engine the images' bases, then fetch the downloads that their Dockerfiles mount."""
    failed: Failures = {}
    in_engine = any(buildx.builder is None for buildx in context.builders)
    for image in {image.os_name: image for image in images}.values():
        base = context.inputs.bases[image.os_name]
        try:
            if base.layout and not in_engine:  # another builder reads it as it is
                require_whole(base)
            else:
                provide_base(image, context.settings, base, context.engine, context.log)
        except ImgbuildError as error:
            same = [other.name for other in images if other.os_name == image.os_name]
            failed |= dict.fromkeys(same, error)
    left = [image for image in images if image.name not in failed]
    if not left or (failed and not context.options.keep_going):
        return {}, failed
    downloads, not_fetched = fetch_downloads(left, context)
    return downloads, failed | not_fetched


def fetch_downloads(images: Sequence[Image], context: BuildContext) -> tuple[Downloads, Failures]:
    """Return the folders of each image by named context, and why some images have none.

    Without ``keep_going`` the first failure ends it. A file that failed is not tried again: a
    silent site costs minutes, and images share files.
    """
    folders: Downloads = {}
    failed: Failures = {}
    broken: dict[Source, ImgbuildError] = {}
    sites = Sites(images[0].matrix.upstream_urls, context.settings)
    with show_progress() as progress:
        fetch = partial(prepare_downloads, cache=cache_dir(), sites=sites, progress=progress)
        for image in images:
            name = image.name
            needed = context.inputs.downloads[name]
            fresh: dict[Source, ImgbuildError] = {}
            try:
                if folder := context.options.offline:
                    from imgbuild.inputs.fetched import offline_contexts  # noqa: PLC0415 - rare

                    folders[name] = offline_contexts(context.listings[name], folder, cache_dir())
                    continue
                for file in broken.keys() & needed.all:
                    raise broken[file]
                folders[name] = {
                    stage: fetch(files, failed=fresh) for stage, files in needed.contexts.items()
                }
            except ImgbuildError as error:
                failed[name] = error
                for file, cause in fresh.items():
                    broken[file] = _with_prefix(cause, file, image)
                    if cause is error:
                        failed[name] = broken[file]
                if not context.options.keep_going:
                    break
    return folders, failed


def _with_prefix(error: ImgbuildError, file: Source, image: Image) -> ImgbuildError:
    """Return a file's error; of a source of CPython out of reach with the way to do without it."""
    python = image.python
    source = python.origin == "source" and image.matrix.sources[python.source].url
    if file.url != source or not isinstance(error, MachineError):
        return error
    have = f"If this machine has CPython {image.version_of('python')}, as of pyenv, "
    return MachineError(f"{error} {have}`imgbuild doctor --write {image.name}` finds it.")


def provide_archive_base(name: str, system: str, context: BuildContext) -> Base:
    """Return the base image of the family that asks the archive of a system, such as debian-12.

    The engine then has it, or can pull it by its digest. ``name`` is the image it is for.

    InputError: the matrix does not have this system. Otherwise as `provide_base`.
    """
    images = {image.os_name: image for image in all_images(context.images[0].matrix)}
    if system not in images:
        raise InputError(
            f"The system of {name} is {system!r}. imgbuild can ask only the archives of the "
            f"systems in matrix.yaml: {', '.join(images)}."
        )
    image = images[system]
    base = resolve_base(image, context.settings)
    provide_base(image, context.settings, base, context.engine, context.log)
    return base
