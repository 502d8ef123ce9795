"""Fetch downloads and load base images for the images that are about to be built."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from imgbuild.build.context import BuildContext
from imgbuild.errors import ImgbuildError
from imgbuild.files import work_folder
from imgbuild.inputs.download import Download, NotFetchedError, WrongContentError, downloads_context
from imgbuild.inputs.download_progress import shown_progress
from imgbuild.inputs.oci_layout import write_archive
from imgbuild.matrix.images import Image
from imgbuild.settings import Sites

#: Folders by named context, by image.
Downloads = dict[str, Mapping[str, Path]]
#: Why images cannot be built, by image.
Failures = dict[str, ImgbuildError]


def prepare(images: Sequence[Image], context: BuildContext) -> tuple[Downloads, Failures]:
    """Fetch what the images' Dockerfiles mount, and give the engine their base images.

    Without ``keep_going`` the first download that fails ends it.
    """
    downloads, failed = fetch_downloads(images, context, context.options.keep_going)
    left = [image for image in images if image.name not in failed]
    for name in dict.fromkeys(image.os_name for image in left):
        try:
            load_bases([name], context)
        except ImgbuildError as error:
            failed |= {image.name: error for image in left if image.os_name == name}
    return downloads, failed


def fetch_downloads(
    images: Sequence[Image], context: BuildContext, keep_going: bool
) -> tuple[Downloads, Failures]:
    """Return the folders of each image by named context, and why some images have none.

    A file that failed is not tried again: a silent site costs minutes, and images share files.
    """
    folders: Downloads = {}
    failed: Failures = {}
    broken: dict[Download, ImgbuildError] = {}
    sites = Sites(images[0].matrix.upstream_urls, context.settings)
    with shown_progress() as progress:
        fetch = partial(downloads_context, cache=context.cache, sites=sites, progress=progress)
        for name in (image.name for image in images):
            needed = context.inputs.downloads[name]
            try:
                if context.fetched:
                    folders[name] = context.fetched.contexts(name)
                    continue
                for file in broken.keys() & needed.all:
                    raise broken[file]
                folders[name] = {one: fetch(files) for one, files in needed.contexts.items()}
            except ImgbuildError as error:
                if isinstance(error, NotFetchedError | WrongContentError):
                    broken[error.download] = error
                failed[name] = error
                if not keep_going:
                    break
    return folders, failed


def load_bases(names: Iterable[str], context: BuildContext) -> None:
    """Give the engine the base images, by operating system, that it does not have yet.

    Raises:
        MachineError: the base cannot be made again, or the engine does not take it.

    """
    for name in names:
        base = context.inputs.bases[name]
        if base.layout is None or context.engine.inspect(base.reference):
            continue
        base.require_whole()
        with work_folder("base") as folder:
            archive = folder / "base.tar"
            write_archive(base.layout.path, archive)
            with archive.open("rb") as stream:
                context.engine.load(stream)
