"""Published images as a source of a build: what is there with the same inputs is not built."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from imgbuild.caches.protocol import CacheError, Kind, WantedImage, report_key
from imgbuild.engine.client import Engine
from imgbuild.errors import CheckFailedError
from imgbuild.publishing.content import of_image
from imgbuild.publishing.index import Index, read_index
from imgbuild.publishing.lookup import find_published
from imgbuild.publishing.record import Record, read_record
from imgbuild.registry.client import RegistryClient


@dataclass
class PublishedImages:
    """A `BuildCache` that only gives: images by digest, and what their suites found.

    Every name that it gives is taken away again by `release`; the build names what it took.
    """

    registry: RegistryClient
    engine: Engine
    say: Callable[[str], None]
    _index: Index | None = None
    #: What was pulled, by the key of its report.
    _taken: dict[str, Record] = field(default_factory=dict)
    _lent: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The repository."""
        return self.registry.name

    def has_image(self, image: WantedImage) -> bool:
        """Look into the index; nothing is pulled."""
        return self._record(image) is not None

    def restore(self, images: Sequence[WantedImage]) -> Sequence[WantedImage]:
        """Pull each image that is published, by its digest."""
        return [image for image in images if self._pulled(image)]

    def save_image(self, image: WantedImage, image_id: str) -> None:
        """Refuse: `imgbuild push` publishes."""
        raise CacheError(f"{image.name} ({image_id}) is published by `imgbuild push` only.")

    def release(self, image_id: str) -> None:
        """Take away the name that a pulled image has for this, if it has another by now."""
        reference = self._lent.get(image_id)
        found = self.engine.inspect(image_id) if reference else None
        if reference and found and len(found.tags) > 1:
            self.engine.untag(reference)
            del self._lent[image_id]

    def read(self, kind: Kind, key: str, folder: Path) -> Path | None:
        """Write out what the suites found of a pulled image; there are no wheels and no bases."""
        taken = self._taken.get(key) if kind is Kind.REPORT else None
        if taken is None:
            return None
        record = read_record(self.registry, taken.tag)
        if record is None or record.digest != taken.digest:
            return None
        path = folder / "report.json"
        path.write_text(json.dumps({"suites": dict(record.report)}), encoding="utf-8")
        return path

    def write(self, kind: Kind, key: str, file: Path) -> None:
        """Refuse, as `save_image` does."""
        raise CacheError(f"The {kind} {key} ({file.name}) is not kept among published images.")

    def has(self, kind: Kind, key: str) -> bool:
        """Return whether there is such a report."""
        return kind is Kind.REPORT and key in self._taken

    def _record(self, image: WantedImage) -> Record | None:
        if self._index is None:
            self._index = read_index(self.registry) or Index()
        return find_published(self._index, image.name, image.input_digest)

    def _pulled(self, image: WantedImage) -> bool:
        record = self._record(image)
        if record is None:
            return False
        reference = f"{self.name}@{record.digest}"
        try:
            self.engine.pull(reference)
        except CheckFailedError as error:
            self.say(f"{image.name} of {self.name} cannot be pulled: {error}")
            return False
        found = self.engine.inspect(reference)
        manifest = self.registry.manifest(record.digest)
        if not (found and manifest and of_image(manifest, found.id) and image.fits(found.labels)):
            self.say(f"{reference} is not what the index says of {image.name}; it is built here.")
            return False
        if not found.tags:  # the engine would take an image for garbage that has no name
            self.engine.tag(found.id, f"{self.name}:{record.tag}")
            self._lent[found.id] = f"{self.name}:{record.tag}"
        self._taken[report_key(image.input_digest, found.layers)] = record
        return True
