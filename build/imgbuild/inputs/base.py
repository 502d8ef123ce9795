"""A base image, as builds take it."""

from dataclasses import dataclass
from pathlib import Path

from imgbuild.core.errors import MachineError

#: Where a base image comes from, in labels: made from the distribution's archive, pulled by its
#: digest, or in a folder that the settings name.
BOOTSTRAPPED, REGISTRY, LAYOUT = "bootstrapped", "registry", "OCI layout"


@dataclass(frozen=True)
class Base:
    """A base image: a reference in a registry or, with ``layout``, an OCI layout on disk.

    ``digest`` is part of the input digest: the one in the registry, or the id of a layout's image,
    which depends on its files alone, not on how they are compressed. It is None until the image is
    made. An engine loads a layout under ``reference``, and gives it one of ``engine_ids``: the
    image's id on a graph driver, and its manifest's digest in a containerd store.
    """

    reference: str
    digest: str | None
    origin: str
    layout: Path | None = None
    engine_ids: tuple[str, ...] = ()

    def context(self, *, in_engine: bool = True) -> str:
        """Return it as a named build context; another builder lacks the engine's images."""
        if in_engine or not self.layout:
            return f"docker-image://{self.reference}"
        return f"oci-layout://{self.layout}"


def require_made(base: Base, os_name: str) -> None:
    """Raise MachineError for a base image that is still to be made."""
    if base.digest is None:
        raise MachineError(
            f"The base image {os_name} is made from the distribution's archive, and this machine "
            "has not made it yet: run `imgbuild doctor --write`."
        )
