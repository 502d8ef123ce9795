"""Base images that are made on this machine, from caches and into them.

Without them a machine without state would make its own, of the archive's state of today: another
base, and so every image another one.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from imgbuild.caches.protocol import BuildCache, Kind
from imgbuild.caches.several import Caches
from imgbuild.inputs.base import BaseRecipe, adopt_base, find_base, save_archive
from imgbuild.matrix.image import Image
from imgbuild.plan.inputs import base_recipe
from imgbuild.settings import BootstrapBase, Settings
from imgbuild.work_folder import work_folder


def take_bases(images: Iterable[Image], settings: Settings, caches: Caches, cache: Path) -> None:
    """Take those from the caches that this user's folder ``cache`` does not have yet.

    Raises:
        MachineError: the folder cannot be written.

    """
    for recipe in _recipes(images, settings) if caches.sources else ():
        if find_base(recipe, cache) is None:
            with work_folder("cache") as folder:
                archive = caches.read(Kind.BASE, _key(recipe), folder)
                if archive and adopt_base(recipe, cache, archive):
                    caches.say(f"The base image {recipe.os_name} is taken from a cache.")


def keep_bases(
    images: Iterable[Image], settings: Settings, caches: Caches, cache: Path, *, again: bool
) -> None:
    """Keep those that the caches lack; ``again`` those too that they have (``--refresh-base``)."""
    for recipe in _recipes(images, settings) if caches.targets else ():
        write = partial(_keep, recipe, cache, again)
        for target in caches.targets:
            caches.attempt(target, "cannot be written", write, None)


def _recipes(images: Iterable[Image], settings: Settings) -> Iterator[BaseRecipe]:
    each = {image.os_name: image for image in images}
    for image in each.values():
        if isinstance(settings.base_for(image.os_name, image.os.image), BootstrapBase):
            yield base_recipe(image)


def _keep(recipe: BaseRecipe, cache: Path, again: bool, target: BuildCache) -> None:
    layout = find_base(recipe, cache)
    if layout and (again or not target.has(Kind.BASE, _key(recipe))):
        with work_folder("cache") as folder:
            archive = folder / f"{layout.reference.rpartition(':')[2]}.tar"
            save_archive(layout, archive)
            target.write(Kind.BASE, _key(recipe), archive)


def _key(recipe: BaseRecipe) -> str:
    return recipe.digest[:32]
