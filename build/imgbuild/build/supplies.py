"""Bringing the downloads of the images that are about to be built."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from imgbuild.build.workshop import Workshop
from imgbuild.errors import ImgbuildError
from imgbuild.inputs.download import Download, NotFetchedError, WrongContentError, downloads_context
from imgbuild.inputs.download_progress import DownloadProgress, shown_progress
from imgbuild.plan.plan import PlanItem

#: Folders by named context, by image.
Supplies = Mapping[str, Mapping[str, Path]]


def bring_downloads(items: Sequence[PlanItem], workshop: Workshop) -> Supplies:
    """Return the folders that the images' Dockerfiles mount, fetched where they are missing.

    Raises:
        CheckFailedError: a file is another one than its sha256 says.
        MachineError: a file cannot be had.

    """
    supplies, failed = bring_each(items, workshop, keep_going=False)
    for error in failed.values():
        raise error
    return supplies


def bring_each(
    items: Sequence[PlanItem], workshop: Workshop, *, keep_going: bool
) -> tuple[Supplies, Mapping[str, ImgbuildError]]:
    """Return the folders by image, and why some images have none.

    With ``keep_going`` the others' are brought all the same.
    """
    listed = workshop.fetched.listings if workshop.fetched else {}
    supplies = {
        name: workshop.fetched.supplies(name)
        for name in (item.image.name for item in items)
        if workshop.fetched and name in listed
    }
    failed: dict[str, ImgbuildError] = {}
    with shown_progress() as progress:
        bringing = _Bringing(workshop, progress)
        for name in (item.image.name for item in items if item.image.name not in listed):
            try:
                supplies[name] = bringing.contexts(name)
            except ImgbuildError as error:
                failed[name] = error
                if not keep_going:
                    break
    return supplies, failed


@dataclass(frozen=True)
class _Bringing:
    """Brings downloads for image after image; a file that could not be had is not tried again.

    A site that is silent costs minutes, and most images need the same files.
    """

    workshop: Workshop
    progress: DownloadProgress
    missing: dict[Download, ImgbuildError] = field(default_factory=dict)

    def contexts(self, name: str) -> Mapping[str, Path]:
        wanted = self.workshop.inputs.downloads[name].contexts
        for download in (one for files in wanted.values() for one in files):
            if download in self.missing:
                raise self.missing[download]
        return {context: self._folder(files) for context, files in wanted.items()}

    def _folder(self, files: Iterable[Download]) -> Path:
        cache, sites = self.workshop.cache, self.workshop.sites
        try:
            return downloads_context(files, cache, sites, self.progress)
        except (NotFetchedError, WrongContentError) as error:
            self.missing[error.download] = error
            raise
