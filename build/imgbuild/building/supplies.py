"""Bringing the downloads of the images that are about to be built."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from imgbuild.building.workshop import Workshop
from imgbuild.downloads.context import downloads_context
from imgbuild.downloads.progress import shown_progress
from imgbuild.plan.plan import PlanItem

#: Folders by named context, by image.
Supplies = Mapping[str, Mapping[str, Path]]


def bring_downloads(items: Sequence[PlanItem], workshop: Workshop) -> Supplies:
    """Return the folders that the images' Dockerfiles mount, fetched where they are missing.

    Raises:
        CheckFailedError: a file is another one than its sha256 says.
        MachineError: a file cannot be had.

    """
    if workshop.fetched:
        return {i.image.name: workshop.fetched.supplies(i.image.name) for i in items}
    with shown_progress() as progress:
        return {
            item.image.name: {
                name: downloads_context(files, workshop.cache, workshop.sites, progress)
                for name, files in workshop.inputs.downloads[item.image.name].contexts.items()
            }
            for item in items
        }
