"""Before a bake: see that the disk has space, fetch downloads, give the engine its base images."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from imgbuild.build.context import BuildContext
from imgbuild.engine.client import Engine
from imgbuild.engine.failure import find_fault
from imgbuild.engine.faults import DOCTOR, EngineUnusableError
from imgbuild.errors import CheckFailedError, ImgbuildError, InputError, MachineError
from imgbuild.files import work_folder
from imgbuild.inputs.base import MADE_IN_PLACE, find_base, missing_packages
from imgbuild.inputs.build_inputs import (
    BaseInput,
    BuildInputs,
    base_input,
    base_recipe,
    prepare_inputs,
)
from imgbuild.inputs.download import downloads_context, shown_progress
from imgbuild.inputs.oci_layout import write_archive
from imgbuild.matrix.images import Image, all_images
from imgbuild.settings import RegistryBase, Settings
from imgbuild.sites import Sites
from imgbuild.sources import Source
from imgbuild.text import counted

#: Folders by named context, by image.
Downloads = dict[str, Mapping[str, Path]]
#: Why images cannot be built, by image.
Failures = dict[str, ImgbuildError]
#: The kinds of `BuildFault` by which a registry did not answer at all.
_NO_ANSWER = ("certificate", "unreachable")
GIB = 1 << 30
#: With less than this free, a failure may well come from the full disk.
SCARCE = 256 << 20
_FREE_SOME = (
    "Free space, for example with `imgbuild clean`, `docker image prune` and `docker builder prune`"
)


def require_disk_space(images: Sequence[Image], engine: Engine) -> None:
    """Raise unless the engine's data folder has space for the images, as far as it can be seen."""
    folder, free = _data_folder(engine)
    needed = needed_bytes(images)
    if free is not None and free < needed:
        raise MachineError(
            f"{free / 1e9:.1f} GB are free in the engine's data folder {folder}; at least "
            f"{needed / 1e9:.1f} GB must be to build {counted(len(images), 'image')}. "
            f"{_FREE_SOME}; nothing was started."
        )


def _data_folder(engine: Engine) -> tuple[Path, int | None]:
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
        folder, free = _data_folder(engine)
    except MachineError:  # the engine was lost, which is reported already
        return ""
    if free is None or free >= SCARCE:
        return ""
    return (
        f"The engine's disk is full: {free / (1 << 20):.0f} MB are free in {folder}. {_FREE_SOME}, "
        "and build again: finished steps are kept."
    )


def prepare(images: Sequence[Image], context: BuildContext) -> tuple[Downloads, Failures]:
    """Fetch what the images' Dockerfiles mount, and give the engine their base images."""
    downloads, failed = fetch_downloads(images, context)
    if failed and not context.options.keep_going:
        return downloads, failed
    left = [image for image in images if image.name not in failed]
    in_engine, bases = any(one.builder is None for one in context.builders), context.inputs.bases
    for name in dict.fromkeys(image.os_name for image in left):
        try:
            if in_engine:
                load_base(bases[name], context.engine)
            else:  # another builder takes it as it is
                bases[name].require_whole()
        except ImgbuildError as error:
            failed |= {image.name: error for image in left if image.os_name == name}
    return downloads, failed


def fetch_downloads(images: Sequence[Image], context: BuildContext) -> tuple[Downloads, Failures]:
    """Return the folders of each image by named context, and why some images have none.

    Without ``keep_going`` the first failure ends it. A file that failed is not tried again: a
    silent site costs minutes, and images share files.
    """
    folders: Downloads = {}
    failed: Failures = {}
    broken: dict[Source, ImgbuildError] = {}
    sites = Sites(images[0].matrix.upstream_urls, context.settings)
    with shown_progress() as progress:
        fetch = partial(downloads_context, cache=context.cache, sites=sites, progress=progress)
        for image in images:
            name = image.name
            needed = context.inputs.downloads[name]
            fresh: dict[Source, ImgbuildError] = {}
            try:
                if context.fetched:
                    folders[name] = context.fetched.contexts(name)
                    continue
                for file in broken.keys() & needed.all:
                    raise broken[file]
                folders[name] = {
                    one: fetch(files, failed=fresh) for one, files in needed.contexts.items()
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


def load_base(base: BaseInput, engine: Engine) -> None:
    """Give the engine a base image that is a layout, unless it has it under its name."""
    if base.layout is None:
        return
    found = engine.inspect(base.reference)  # any image can have that name
    if found and found.id in {base.layout.image_id, base.layout.manifest}:
        return
    base.require_whole()
    with work_folder("base") as folder:
        archive = folder / "base.tar"
        write_archive(base.layout.path, archive)
        with archive.open("rb") as stream:
            engine.load(stream)


def archive_base(name: str, system: str, context: BuildContext) -> BaseInput:
    """Return the base image of the family that asks the archive of a system, such as debian-12.

    The engine then has it, or can pull it by its digest. ``name`` is the image it is for.

    InputError: the matrix does not have this system. Otherwise as `with_bases`.
    """
    images = {one.os_name: one for one in all_images(context.images[0].matrix)}
    if system not in images:
        raise InputError(
            f"The system of {name} is {system!r}. imgbuild can ask only the archives of the "
            f"systems in matrix.yaml: {', '.join(images)}."
        )
    image = images[system]
    settings, _ = with_bases([image], replace(context, images=(image,)))
    base = base_input(image, settings, context.log)
    load_base(base, context.engine)
    return base


def with_bases(images: Iterable[Image], context: BuildContext) -> tuple[Settings, BuildInputs]:
    """Let the engine have the base images of ``images`` that can be made here as well.

    Return the build's settings and inputs: others, where no registry answers and a base image is
    made here; later commands take the same. What the settings name is left to the build.

    CheckFailedError: a registry answers and does not give the image.
    MachineError: none answers, and the image cannot be made here.
    """
    settings, inputs = context.settings, context.inputs
    for image in {one.os_name: one for one in images}.values():
        base = settings.base_for(image.os_name, image.os.image)
        if (
            image.os_name in settings.base
            or image.os.distribution not in MADE_IN_PLACE
            or not isinstance(base, RegistryBase)
        ):
            continue
        if why := _pull(base.image, image, context):
            archive = f"{image.os.distribution.capitalize()}'s archive"
            context.log(
                f"No registry answers ({why}): {archive} gives the base image {image.os_name} in "
                f"place of {base.image}, until --refresh-base."
            )
            settings = settings.with_made(base.image)
            options = (context.log, True, context.options.refresh_base)
            inputs = prepare_inputs(context.images, settings, context.project, *options)
            settings.remember_made()
    return settings, inputs


def _pull(reference: str, image: Image, context: BuildContext) -> str:
    """Let the engine have the image; return why no registry answers, or nothing."""
    if context.engine.inspect(reference):
        return ""
    context.log(f"pulling the base image {reference}")
    try:
        context.engine.pull(reference, pinned=True)
    except EngineUnusableError:
        raise
    except ImgbuildError as error:
        # The engine's own words, without what it was asked.
        said = str(error).removesuffix(DOCTOR).partition(": ")[2].strip(" .")
        fault = find_fault([said])
        bootstrap = f"base: {{{image.os_name}: {{from: bootstrap}}}}"
        if fault is None or fault.kind not in _NO_ANSWER:
            raise CheckFailedError(
                f"The registry does not give the base image {reference}: {said}. If it wants a "
                "login, use `docker login`; if it is a mirror (settings: registry), it must have "
                f"this digest. `{bootstrap}` in imgbuild.local.yaml makes the image here."
            ) from error
        lacking = missing_packages(image.os.distribution)
        if lacking and not find_base(base_recipe(image, context.settings), context.cache):
            raise MachineError(
                f"The base image {reference} cannot be pulled, since no registry answers the "
                f"engine: {said}. Let it reach one (a proxy or mirror of the engine, or the prefix "
                "`registry` in imgbuild.local.yaml), or let imgbuild make the image from the "
                f"archive: `sudo apt-get install -y {' '.join(lacking)}`."
            ) from error
        return said
    return ""
