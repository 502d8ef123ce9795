"""What imgbuild asks of an engine: `DockerEngine` is the real one, `FakeEngine` one for tests."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import BinaryIO, Protocol

from imgbuild.engine.stored import (
    EngineVersion,
    RunOptions,
    StoredContainer,
    StoredImage,
    StoredNetwork,
)

DEFAULT_OPTIONS = RunOptions()
#: Gets what the engine says while it works, such as ``{"id": …, "progressDetail": {…}}``.
Hearing = Callable[[Mapping[str, object]], None]


class Engine(Protocol):
    """A container engine. Every method raises `MachineError` when it cannot be reached."""

    def version(self) -> EngineVersion:
        """Return what the engine is."""

    def images(self, label: str) -> list[StoredImage]:
        """Return the images that have ``label`` (``key`` or ``key=value``), untagged ones too."""

    def inspect(self, reference: str) -> StoredImage | None:
        """Return the image of that name or id, or ``None``."""

    def history(self, image_id: str) -> list[str]:
        """Return the instructions that the image was made by, the newest first."""

    def tag(self, image_id: str, reference: str) -> None:
        """Give an image a name; the name moves if another image had it."""

    def untag(self, reference: str) -> None:
        """Take a name away, if it is there. An image without any other name goes with its name."""

    def discard(self, image_id: str) -> bool:
        """Remove an image that has no name and no container; return whether it is gone."""

    def load(self, archive: BinaryIO) -> tuple[str, ...]:
        """Load a ``docker save`` archive; return the names or ids of its images."""

    def save(self, reference: str) -> Generator[bytes, None, None]:
        """Yield the ``docker save`` archive of one image, in pieces.

        Nothing else can be asked meanwhile: close it, in the thread that began it, where not all is
        read.
        """

    def pull(self, reference: str) -> None:
        """Fetch an image from its registry."""

    def push(self, reference: str, hear: Hearing | None = None) -> None:
        """Send an image to the registry of its name; ``hear`` gets the engine's messages."""

    def distribution(self, reference: str) -> str | None:
        """Return the digest that a registry has for a name, or ``None`` if it has no such image."""

    def start(
        self,
        image: str,
        *,
        command: Sequence[str],
        labels: Mapping[str, str],
        options: RunOptions = DEFAULT_OPTIONS,
    ) -> str:
        """Start a container and return its id. A container that does not start is removed."""

    def remove_container(self, container: str) -> None:
        """Stop and remove a container with its anonymous volumes, if it is there."""

    def containers(self, label: str) -> list[StoredContainer]:
        """Return the containers that have ``label``, stopped ones too."""

    def networks(self, label: str) -> list[StoredNetwork]:
        """Return the networks that have ``label``."""

    def remove_network(self, network: str) -> None:
        """Remove a network, if it is there and no container is on it."""

    def copy_in(self, container: str, archive: bytes, path: str) -> None:
        """Unpack a tar archive below ``path`` in the container."""

    def close(self) -> None:
        """Close the connections."""
