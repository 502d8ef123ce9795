"""A cache in a repository of a registry, by way of the engine: its TLS and mirrors, its logins."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from imgbuild.caches.protocol import Kind, WantedImage
from imgbuild.caches.saved import only_layer
from imgbuild.caches.small_image import LABEL, small_image, unpack
from imgbuild.caches.stream import as_file
from imgbuild.engine.client import Engine
from imgbuild.errors import CheckFailedError

#: Enough of a digest for a tag; tags have at most 128 characters.
DIGITS = 32


@dataclass(frozen=True)
class RegistryCache:
    """Images as tags ``input-<digest>``, small files as images of one file."""

    repository: str
    engine: Engine
    say: Callable[[str], None]

    @property
    def name(self) -> str:
        """The repository."""
        return self.repository

    def has_image(self, image: WantedImage) -> bool:
        """Ask the registry; nothing is pulled."""
        return self.engine.distribution(self._image(image)) is not None

    def restore(self, images: Sequence[WantedImage]) -> Sequence[WantedImage]:
        """Pull each image; its tag stays until `release`, since it has no other name yet."""
        return [image for image in images if self.has_image(image) and self._pulled(image)]

    def save_image(self, image: WantedImage, image_id: str) -> None:
        """Push the image; layers that the registry has are not sent."""
        self._push(self._image(image), lambda tag: self.engine.tag(image_id, tag))

    def release(self, image_id: str) -> None:
        """Take away this cache's tags, also those that a killed build left."""
        found = self.engine.inspect(image_id)
        mine = [tag for tag in found.tags if self._is_mine(tag)] if found else []
        if found and len(mine) < len(found.tags):
            for tag in mine:
                self.engine.untag(tag)

    def read(self, kind: Kind, key: str, folder: Path) -> Path | None:
        """Pull the image of one file, and take the file out."""
        tag = self._file(kind, key)
        if not self.has(kind, key):
            return None
        try:
            self.engine.pull(tag)
            with closing(self.engine.save(tag)) as pieces:
                return unpack(only_layer(pieces), folder)
        except CheckFailedError as error:
            self.say(f"The {kind} {key} of the cache {self.name} cannot be read: {error}")
            return None
        finally:
            self.engine.untag(tag)

    def write(self, kind: Kind, key: str, file: Path) -> None:
        """Push a file as an image that holds nothing else."""
        tag = self._file(kind, key)
        label = {LABEL: f"{kind}-{key}"}

        def make(reference: str) -> None:
            self.engine.load(as_file(small_image(file, reference, label)))

        self._push(tag, make)

    def has(self, kind: Kind, key: str) -> bool:
        """Ask the registry."""
        return self.engine.distribution(self._file(kind, key)) is not None

    def _image(self, image: WantedImage) -> str:
        return f"{self.repository}:input-{image.key[:DIGITS]}"

    def _file(self, kind: Kind, key: str) -> str:
        return f"{self.repository}:{kind}-{key}"

    def _is_mine(self, tag: str) -> bool:
        return tag.startswith(f"{self.repository}:input-")

    def _pulled(self, image: WantedImage) -> bool:
        tag = self._image(image)
        try:
            self.engine.pull(tag)
        except CheckFailedError as error:
            self.say(f"{image.name} of the cache {self.name} cannot be read: {error}")
            return False
        found = self.engine.inspect(tag)
        if found and image.fits(found.labels):
            return True
        self.engine.untag(tag)
        self.say(f"The cache {self.name} holds another image in place of {image.name}.")
        return False

    def _push(self, tag: str, make: Callable[[str], None]) -> None:
        """Push what ``make`` gives the name; the name does not outlive this, whatever comes."""
        try:
            make(tag)
            self.engine.push(tag)
        finally:
            self.engine.untag(tag)
