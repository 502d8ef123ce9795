"""Base images that are made on this machine, from caches and into them.

Without them a machine without state would make its own, of the archive's state of today: another
base, and so every image another one.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from imgbuild.caches.protocol import BuildCache, Kind
from imgbuild.caches.several import Caches
from imgbuild.files import work_folder
from imgbuild.inputs.base import BaseRecipe, adopt_base, find_base, save_archive
from imgbuild.inputs.build_inputs import BuildInputs, Preparation, base_recipe, prepare_inputs
from imgbuild.matrix.images import Image
from imgbuild.settings import BootstrapBase, Settings


def prepare_with_caches(
    images: tuple[Image, ...], settings: Settings, preparation: Preparation, caches: Caches
) -> BuildInputs:
    """Return the inputs of a build; bases that are missing come from the caches if they have them.

    With ``--refresh-base`` none is taken, and the new ones take the place of those that are kept.

    Raises:
        InputError: the settings name a prefix or a CA bundle that cannot be used.
        MachineError: an input cannot be made, or the user's cache cannot be written.

    """
    recipes = tuple(_recipes(images, settings))
    for recipe in recipes if not preparation.refresh else ():
        _take(recipe, preparation.cache, caches)
    inputs = prepare_inputs(images, settings, preparation)
    for recipe in recipes if preparation.make else ():
        write = partial(_keep, recipe, preparation)
        for target in caches.targets:
            caches.attempt(target, "cannot be written", write, None)
    return inputs


def _take(recipe: BaseRecipe, cache: Path, caches: Caches) -> None:
    if not caches.sources or find_base(recipe, cache):
        return
    with work_folder("cache") as folder:
        archive = caches.read(Kind.BASE, _key(recipe), folder)
        if archive and adopt_base(recipe, cache, archive):
            caches.say(f"The base image {recipe.os_name} is taken from a cache.")


def _keep(recipe: BaseRecipe, preparation: Preparation, target: BuildCache) -> None:
    layout = find_base(recipe, preparation.cache)
    if layout and (preparation.refresh or not target.has(Kind.BASE, _key(recipe))):
        with work_folder("cache") as folder:
            archive = folder / f"{layout.reference.rpartition(':')[2]}.tar"
            save_archive(layout, archive)
            target.write(Kind.BASE, _key(recipe), archive)


def _recipes(images: Iterable[Image], settings: Settings) -> Iterator[BaseRecipe]:
    each = {image.os_name: image for image in images}
    for image in each.values():
        if isinstance(settings.base_for(image.os_name, image.os.image), BootstrapBase):
            yield base_recipe(image)


def _key(recipe: BaseRecipe) -> str:
    return recipe.digest[:32]
