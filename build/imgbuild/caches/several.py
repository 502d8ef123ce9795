"""The caches of one build. One that fails is told of once and left alone: it fails no build."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from imgbuild.caches.folder import FolderCache
from imgbuild.caches.place import FolderPlace, Place
from imgbuild.caches.protocol import BuildCache, Kind, WantedImage
from imgbuild.caches.registry import RegistryCache
from imgbuild.engine.client import Engine
from imgbuild.errors import ImgbuildError

_Found = TypeVar("_Found")
_READ = "cannot be read"


@dataclass(frozen=True)
class Caches:
    """What is read (``sources``, in this order) and written (``targets``).

    What was read is remembered, so that a cache that is read and written is not asked for it again.
    """

    sources: tuple[BuildCache, ...] = ()
    targets: tuple[BuildCache, ...] = ()
    say: Callable[[str], None] = print
    _broken: set[str] = field(default_factory=set)
    #: Which images came from which cache, by its name.
    _given: set[tuple[str, WantedImage]] = field(default_factory=set)
    #: The reports that were asked for, by cache; None where there was none.
    _reports: dict[tuple[str, str], bytes | None] = field(default_factory=dict)

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
            if kind is Kind.REPORT:
                self._reports[cache.name, key] = found.read_bytes() if found else None
            if found:
                return found
        return None

    def gave(self, cache: BuildCache, image: WantedImage) -> bool:
        """Return whether the image came from this cache."""
        return (cache.name, image) in self._given

    def report(self, cache: BuildCache, key: str, folder: Path) -> bytes | None:
        """Return a report that a cache has, if it has it; read into ``folder`` at most once."""
        if (cache.name, key) not in self._reports:
            found = cache.read(Kind.REPORT, key, folder)
            self._reports[cache.name, key] = found.read_bytes() if found else None
        return self._reports[cache.name, key]

    def _restore(self, cache: BuildCache, images: Sequence[WantedImage]) -> Sequence[WantedImage]:
        found: Sequence[WantedImage] = self.attempt(
            cache, _READ, lambda one: one.restore(images), ()
        )
        self._given.update((cache.name, image) for image in found)
        return found


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
