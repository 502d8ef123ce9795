"""Fetch downloads and load base images for the images that are about to be built."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from imgbuild.build.context import BuildContext
from imgbuild.errors import ImgbuildError
from imgbuild.files import work_folder
from imgbuild.inputs.download import Download, NotFetchedError, WrongContentError, downloads_context
from imgbuild.inputs.download_progress import DownloadProgress, shown_progress
from imgbuild.inputs.oci_layout import write_archive
from imgbuild.matrix.images import Image


@dataclass(frozen=True)
class Prepared:
    """Folders by named context, by image; and why some images cannot be built, by image."""

    downloads: Mapping[str, Mapping[str, Path]]
    failed: Mapping[str, ImgbuildError]


def prepare(images: Sequence[Image], context: BuildContext) -> Prepared:
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
    return Prepared(downloads, failed)


def fetch_downloads(
    images: Sequence[Image], context: BuildContext, keep_going: bool
) -> tuple[dict[str, Mapping[str, Path]], dict[str, ImgbuildError]]:
    """Return the folders of each image by named context, and why some images have none."""
    fetched = context.fetched
    offline = fetched.listings if fetched else {}
    folders: dict[str, Mapping[str, Path]] = {}
    failed: dict[str, ImgbuildError] = {}
    with shown_progress() as progress:
        fetching = _Fetching(context, progress)
        for name in (image.name for image in images):
            try:
                if fetched and name in offline:
                    folders[name] = fetched.contexts(name)
                else:
                    folders[name] = fetching.contexts(name)
            except ImgbuildError as error:
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


@dataclass(frozen=True)
class _Fetching:
    """Fetches for image after image; a file that failed is not tried again.

    A silent site costs minutes, and most images need the same files.
    """

    context: BuildContext
    progress: DownloadProgress
    failed: dict[Download, ImgbuildError] = field(default_factory=dict)

    def contexts(self, name: str) -> Mapping[str, Path]:
        needed = self.context.inputs.downloads[name].contexts
        for download in (one for files in needed.values() for one in files):
            if download in self.failed:
                raise self.failed[download]
        return {context: self._folder(files) for context, files in needed.items()}

    def _folder(self, files: Iterable[Download]) -> Path:
        cache, sites = self.context.cache, self.context.sites
        try:
            return downloads_context(files, cache, sites, self.progress)
        except (NotFetchedError, WrongContentError) as error:
            self.failed[error.download] = error
            raise
