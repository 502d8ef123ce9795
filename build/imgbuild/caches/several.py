"""The caches of one build. One that fails is told of once and left alone: it fails no build."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from imgbuild.caches.folder import FolderCache
from imgbuild.caches.place import FolderPlace, Place
from imgbuild.caches.protocol import BuildCache, Kind, WantedImage
from imgbuild.caches.registry import RegistryCache
from imgbuild.engine.protocol import Engine
from imgbuild.errors import ImgbuildError

_Found = TypeVar("_Found")
_READ = "cannot be read"


@dataclass(frozen=True)
class Caches:
    """What is read (``sources``, in this order) and written (``targets``)."""

    sources: tuple[BuildCache, ...] = ()
    targets: tuple[BuildCache, ...] = ()
    say: Callable[[str], None] = print
    _broken: set[str] = field(default_factory=set)

    @property
    def all(self) -> tuple[BuildCache, ...]:
        """Each cache once."""
        return tuple({cache.name: cache for cache in (*self.sources, *self.targets)}.values())

    def attempt(
        self,
        cache: BuildCache,
        what: str,
        action: Callable[[BuildCache], _Found],
        otherwise: _Found,
    ) -> _Found:
        """Return what ``action`` gives; if the cache fails, say so once and go on without it.

        ``what`` is what the message says of the cache, such as ``cannot be read``.
        """
        if cache.name in self._broken:
            return otherwise
        try:
            return action(cache)
        except (ImgbuildError, OSError) as error:
            self._broken.add(cache.name)
            self.say(f"The cache {cache.name} {what}; going on without it. {_reason(error)}")
            return otherwise

    def holder(self, image: WantedImage) -> BuildCache | None:
        """Return the first source that has an image."""
        for cache in self.sources:
            if self.attempt(cache, _READ, lambda one: one.has_image(image), otherwise=False):
                return cache
        return None

    def restore(self, images: Sequence[WantedImage]) -> dict[WantedImage, BuildCache]:
        """Give the engine the images that a source has; return from which each came."""
        found: dict[WantedImage, BuildCache] = {}
        for cache in self.sources:
            left = tuple(image for image in images if image not in found)
            if left:
                found |= dict.fromkeys(self._restore(cache, left), cache)
        return found

    def read(self, kind: Kind, key: str, folder: Path) -> Path | None:
        """Return a kept file of the first source that has it whole, in ``folder``."""
        for cache in self.sources:
            found = self.attempt(cache, _READ, lambda one: one.read(kind, key, folder), None)
            if found:
                return found
        return None

    def _restore(self, cache: BuildCache, images: Sequence[WantedImage]) -> Sequence[WantedImage]:
        return self.attempt(cache, _READ, lambda one: one.restore(images), ())


NO_CACHES = Caches()


def open_caches(
    sources: Sequence[Place],
    targets: Sequence[Place],
    engine: Engine,
    say: Callable[[str], None],
    first: Sequence[BuildCache] = (),
) -> Caches:
    """Return the caches at these places; one that is read and written is one cache.

    ``first`` are others that are read before them.
    """
    each: dict[Place, BuildCache] = {
        place: FolderCache(place.path, engine, say)
        if isinstance(place, FolderPlace)
        else RegistryCache(place.repository, engine, say)
        for place in (*sources, *targets)
    }
    return Caches(
        (*first, *(each[place] for place in dict.fromkeys(sources))),
        tuple(each[place] for place in dict.fromkeys(targets)),
        say,
    )


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error} ({error.filename})."
    return str(error)
