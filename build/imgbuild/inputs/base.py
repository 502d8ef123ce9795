"""The base image of a build."""

from dataclasses import dataclass
from pathlib import Path

from imgbuild.core.errors import MachineError
from imgbuild.matrix.images import Image

#: The origin of a base image, as labels record it: made from the distribution's archive, pulled by
#: digest from a registry, or read from a folder that the settings name.
BOOTSTRAPPED, REGISTRY, LAYOUT = "bootstrapped", "registry", "OCI layout"


@dataclass(frozen=True)
class Base:
    """A base image: a reference in a registry or, with ``layout``, an OCI layout on disk.

    ``digest`` is part of the input digest. For a reference, it is the digest in the registry. For a
    layout, it is the image id, which depends on the files but not on their compression. It is None
    until the base is made.

    An engine loads a layout under the name ``reference``. The loaded image has one of
    ``engine_ids``: the image id on a graph driver, or the manifest digest in a containerd store.
    """

    reference: str
    digest: str | None
    origin: str
    layout: Path | None = None
    engine_ids: tuple[str, ...] = ()

    def context(self, *, in_engine: bool = True) -> str:
        """Return the value of a named build context.

        Set ``in_engine`` if the builder is the engine's own. Any other builder lacks the engine's
        images, so it reads the layout from disk.
        """
        if in_engine or not self.layout:
            return f"docker-image://{self.reference}"
        return f"oci-layout://{self.layout}"


def require_made(base: Base, image: Image) -> None:
    """Raise MachineError if the base of an image was not made yet."""
    if base.digest is None:
        raise MachineError(
            f"This machine has not made the base image {image.base_name} yet. To make it from the "
            f"distribution's archive, run `imgbuild doctor --write {image.name}`."
        )
