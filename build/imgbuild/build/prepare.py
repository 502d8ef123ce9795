"""Prepare a build: check the disk space, download files and provide base images."""

import platform
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
from imgbuild.engine.types import AMD64
from imgbuild.inputs.base import Base
from imgbuild.inputs.build_inputs import resolve_base
from imgbuild.inputs.download import prepare_downloads, show_progress
from imgbuild.matrix.images import (
    Image,
    all_images,
    with_build_images,
    with_other_architectures,
)
from imgbuild.net.sites import Sites

#: The folders of each image by named context.
Downloads = dict[str, Mapping[str, Path]]
#: The error of each image that cannot be built.
Failures = dict[str, ImgbuildError]
GIB = 1 << 30
#: With less free space than this, in bytes, a full disk probably caused the failure.
SCARCE = 256 << 20
_FREE_SOME = (
    "Free space, for example with `imgbuild clean`, `docker image prune` and `docker builder prune`"
)


def require_disk_space(images: Sequence[Image], engine: Engine) -> None:
    """Raise MachineError if the engine's data folder on this machine has too little space."""
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
    """Return the free bytes needed to build the images; no images means one image.

    The first image of a system and variant needs 2 GiB: about 1 GB for the image and the same for
    its stages. Each further image adds 0.5 GiB (measured: 29 images and their build cache took
    12.3 GB). Any number needs 6 GiB at most: most steps of a large build are usually
    cached, and a tagged image replaces its predecessor. The engine itself needs 2 GiB more.
    """
    first = len({(image.os_name, image.variant) for image in images}) or 1
    others = max(len(images) - first, 0)
    return min(first * 4 + others, 12) * GIB // 2 + 2 * GIB


def full_disk(engine: Engine) -> str:
    """Return a message if the engine's disk is full, or an empty text.

    Programs report a full disk in many ways ("I/O error", a container that does not start), so
    check the disk itself.
    """
    try:
        folder, free = _find_data_folder(engine)
    except MachineError:  # the lost engine is already reported
        return ""
    if free is None or free >= SCARCE:
        return ""
    return (
        f"The engine's disk is full: {free / (1 << 20):.0f} MB are free in {folder}. {_FREE_SOME}, "
        "then build again. Finished steps are kept."
    )


def prepare(images: Sequence[Image], context: BuildContext) -> tuple[Downloads, Failures]:
    """Provide the base images to the engine, then fetch the downloads that Dockerfiles mount."""
    failed: Failures = {}
    tried: dict[str, ImgbuildError | None] = {}
    for image in images:
        for own in _images_of_bases(image, context):
            if own.base_name not in tried:
                try:
                    _provide(own, context)
                    tried[own.base_name] = None
                except ImgbuildError as error:
                    tried[own.base_name] = error
            if fault := tried[own.base_name]:
                failed[image.name] = fault
    left = [image for image in images if image.name not in failed]
    if not left or (failed and not context.options.keep_going):
        return {}, failed
    downloads, not_fetched = fetch_downloads(left, context)
    return downloads, failed | not_fetched


def _images_of_bases(image: Image, context: BuildContext) -> tuple[Image, ...]:
    """Return the images whose bases the build of an image uses.

    They are itself, and for arm64 the image for the platform that installs and compiles.
    """
    needed: dict[Image, None] = {}
    for buildx in context.builders:
        needed |= dict.fromkeys(with_build_images([image], buildx.platform))
    return tuple(needed)


def _provide(image: Image, context: BuildContext) -> None:
    """Provide the base of an image to the engine, or check it if only other builders use it."""
    inputs = context.inputs
    base = inputs.bases.get(image.base_name) or inputs.build_bases[image.platform, image.os_name]
    in_engine = any(buildx.builder is None for buildx in context.builders)
    if base.layout and not in_engine:  # other builders read the layout directly
        require_whole(base)
    else:
        provide_base(image, context.settings, base, context.engine, context.log)


def fetch_downloads(images: Sequence[Image], context: BuildContext) -> tuple[Downloads, Failures]:
    """Fetch the downloads of images; return the folders by image, and the errors by image.

    Without ``keep_going``, stop at the first failure. A failed file is not tried again for another
    image, because a site that does not answer costs minutes.
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
    """Add a hint to the error if CPython's source cannot be reached; return other errors as is."""
    python = image.python
    source = python.origin == "source" and image.matrix.sources[python.source].url
    if file.url != source or not isinstance(error, MachineError):
        return error
    if image.machine != platform.machine():
        return error
    have = f"If this machine has CPython {image.version_of('python')}, for example from pyenv, "
    return MachineError(f"{error} {have}`imgbuild doctor --write {image.name}` finds it.")


def provide_archive_base(
    name: str, system: str, context: BuildContext, platform_name: str = AMD64
) -> Base:
    """Provide the base image of a system, for example debian-12, to query the system's archive.

    Afterwards the engine has it, or can pull it by digest. ``name`` is the image that needs it, and
    ``platform_name`` its platform.

    InputError: matrix.yaml does not have this system for the platform. Other errors are those of
    `provide_base`.
    """
    family = with_other_architectures(all_images(context.images[0].matrix))
    images = {image.os_name: image for image in family if image.platform == platform_name}
    if system not in images:
        raise InputError(
            f"The system of {name} is {system!r}, for {platform_name}. imgbuild can ask only the "
            f"archives of the systems in matrix.yaml: {', '.join(images) or 'none for it'}."
        )
    image = images[system]
    base = resolve_base(image, context.settings)
    provide_base(image, context.settings, base, context.engine, context.log)
    return base
