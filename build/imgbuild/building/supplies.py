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
    listed = workshop.fetched.listings if workshop.fetched else {}
    supplies = {
        name: workshop.fetched.supplies(name)
        for name in (item.image.name for item in items)
        if workshop.fetched and name in listed
    }
    rest = [item.image.name for item in items if item.image.name not in listed]
    with shown_progress() as progress:
        for name in rest:
            supplies[name] = {
                context: downloads_context(files, workshop.cache, workshop.sites, progress)
                for context, files in workshop.inputs.downloads[name].contexts.items()
            }
    return supplies
