"""imgbuild's images on the engine, sorted by why they could go."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from imgbuild.cleaning.busy import worker_on
from imgbuild.cleaning.finding import Finding
from imgbuild.cleaning.kinds import Kind
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY, STANDIN
from imgbuild.engine.client import Engine
from imgbuild.engine.types import StoredImage
from imgbuild.inputs.base import REPOSITORY as BASE_REPOSITORY
from imgbuild.inputs.oci_layout import short_id
from imgbuild.plan.ownership import is_own, is_own_base, own_names

#: An earlier version kept single files as images with this label, created at this second.
CACHE_FILE, CREATED_SECONDS = "imgbuild.cache", 315619200
BASE_NAME = "org.opencontainers.image.base.name"


@dataclass(frozen=True)
class Wanted:
    """What a checkout would build now: the input digests by image name, and its repository.

    Of images for another repository nothing is known here.
    """

    repository: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)

    def knows(self, image: StoredImage) -> bool:
        """Return whether the image was built by a checkout like this one."""
        return bool(self.repository) and image.labels.get(REPOSITORY) == self.repository

    def is_current(self, image: StoredImage) -> bool:
        """Return whether the image is what the checkout would build now."""
        wanted = self.digests.get(image.labels[NAME])
        return self.knows(image) and wanted == image.labels[INPUT_DIGEST]


@dataclass(frozen=True)
class Images:
    """The images on an engine, and how to remove them. ``busy``: see `busy_images`.

    ``ask`` tells what is wanted; it takes a second, so it is asked only if it matters. ``mine``
    tells of an image id whether this state folder built or tested it: a nameless image of another
    may wait for its suites there. ``now`` is what is busy when something is removed.
    """

    engine: Engine
    ask: Callable[[], Wanted]
    busy: dict[str, str]
    elsewhere: bool = False
    mine: Callable[[str], bool] = lambda _: False
    now: Callable[[], dict[str, str]] = dict

    def find(self) -> Iterator[Finding]:
        """Yield every image that some kind stands for; a named one as `OLD` rather than `IMAGES`.

        Of two kinds that fit, the narrower is taken: stand-ins, then old, then images.
        """
        history = self.engine.history
        own = [image for image in self.engine.images(NAME) if is_own(image, history)]
        wanted = self.ask() if _some_are_doubtful(own) else Wanted()
        renewed = {one.labels[NAME] for one in own if one.tags and wanted.is_current(one)}
        for image in own:
            kind, why = self._kind(image, wanted, renewed)
            if kind:
                yield self._finding(kind, image, why)
        used = {image.labels.get(BASE_NAME, "") for image in own}
        yield from self._bases(used)
        yield from self._cache_files()

    def _kind(
        self, image: StoredImage, wanted: Wanted, renewed: Collection[str]
    ) -> tuple[Kind | None, str]:
        known = wanted.knows(image)
        if not image.tags:
            return self._nameless(image, known=known, current=wanted.is_current(image))
        if not own_names(image):
            return None, ""  # only others' names are left: it is theirs now
        if STANDIN in image.labels:
            return Kind.STANDINS, "for tests: " + image.labels[STANDIN]
        if known and image.labels[NAME] in renewed and not wanted.is_current(image):
            return Kind.OLD, f"{image.labels[NAME]} has a newer image"
        return Kind.IMAGES, "named by imgbuild"

    def _nameless(
        self, image: StoredImage, *, known: bool, current: bool
    ) -> tuple[Kind | None, str]:
        if current:
            return None, ""
        if known and self.mine(image.id):
            return Kind.DANGLING, "nameless, and not current"
        if not self.elsewhere:
            return None, ""
        if known:
            return Kind.DANGLING, "nameless, not current, and not tested by this state folder"
        where = image.labels.get(REPOSITORY, "unknown")
        return Kind.DANGLING, f"nameless, of another checkout ({where})"

    def _finding(self, kind: Kind, image: StoredImage, why: str) -> Finding:
        worker = worker_on(image.labels[NAME], self.busy)
        names = own_names(image)
        shown = ", ".join(names) or f"{short_id(image.id)} ({image.labels[NAME]})"
        kept = f"process {worker} is at work on it" if worker else None
        remove = _remover(self.engine, image, names)
        name = image.labels[NAME]
        return Finding(kind, shown, why, remove, image.size, kept=kept, image=name)

    def _bases(self, used: AbstractSet[str]) -> Iterator[Finding]:
        for image in self.engine.named(BASE_REPOSITORY):
            if is_own_base(image) and not used & {*image.tags}:
                remove = self._while_idle(image, _in(image.tags, BASE_REPOSITORY))
                why = "no image of imgbuild is built on it"
                kept = "a build is running" if self.busy else None
                names = ", ".join(image.tags)
                yield Finding(Kind.BASES, names, why, remove, image.size, kept=kept)

    def _cache_files(self) -> Iterator[Finding]:
        """Yield what a build has on the engine for moments only, on its way to or from a cache."""
        for image in self.engine.images(CACHE_FILE):
            if image.created != CREATED_SECONDS:  # somebody built on it, or it is theirs
                continue
            names = ", ".join(image.tags) or short_id(image.id)
            remove = self._while_idle(image, image.tags)
            why = f"{image.labels[CACHE_FILE]}, of a killed build"
            kept = "a build is running" if self.busy else None
            yield Finding(Kind.CACHE_FILES, names, why, remove, image.size, kept=kept)

    def _while_idle(self, image: StoredImage, names: Sequence[str]) -> Callable[[], bool]:
        """Return what removes an image, unless a build has begun that may need it."""
        remove = _remover(self.engine, image, names)
        return lambda: not self.now() and remove()


def _some_are_doubtful(own: Sequence[StoredImage]) -> bool:
    """Return whether an image has no name, or there are two of one image."""
    of = [(one.labels[NAME], one.labels.get(REPOSITORY)) for one in own]
    return any(not one.tags for one in own) or len({*of}) < len(of)


def _in(tags: Sequence[str], repository: str) -> tuple[str, ...]:
    return tuple(tag for tag in tags if tag.rpartition(":")[0] == repository)


def _remover(engine: Engine, image: StoredImage, names: Sequence[str]) -> Callable[[], bool]:
    """Return what takes the names away, and the image where no other name is left."""

    def remove() -> bool:
        if engine.in_use(image.id):
            return False
        for name in names:
            engine.untag(name)
        # Under another's name, or below an image that somebody built on it, its layers stay.
        return engine.discard(image.id) or bool(names)

    return remove
