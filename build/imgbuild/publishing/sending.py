"""How the images of one push get to the registry: by the engine, or packed by imgbuild."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from imgbuild.caches.blobs import Packing
from imgbuild.engine.protocol import Engine
from imgbuild.errors import MachineError
from imgbuild.project import state_dir
from imgbuild.publishing.content import Sender
from imgbuild.publishing.names import names_folder
from imgbuild.publishing.packed_layers import PackedLayers, packed_layers
from imgbuild.publishing.packing import PackingSender
from imgbuild.registry.patience import Patience
from imgbuild.registry.protocol import Registry

Compression = Literal["gzip", "zstd"]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Sending:
    """``names`` is the folder of the names that images have on the engine while it pushes them."""

    patience: Patience
    names: Path
    say: Say
    layers: PackedLayers | None = None

    def sender(
        self, engine: Engine, pause: Callable[[float], None], told: Callable[[str, str], None]
    ) -> Callable[[str, str, str], None]:
        """Return what sends an image (name, image id, reference); see `Sender`."""
        if self.layers:
            return PackingSender(engine, self.layers, told).send
        return Sender(engine, self.names, self.patience, pause, told, self.say).send


def by_engine(host: str | None, patience: Patience, say: Say) -> Sending:
    """Return how the engine at ``host`` sends images itself."""
    return Sending(patience, names_folder(state_dir(), host), say)


@contextmanager
def packed(sending: Sending, engine: Engine, registry: Registry) -> Iterator[Sending]:
    """Give the same, with layers that imgbuild packs with zstd.

    Raises:
        MachineError: the engine's image ids are digests of manifests, which name packed layers.

    """
    if engine.version().containerd_store:
        raise MachineError(
            "This engine keeps images in containerd: packed anew, an image would be another one to "
            "it, which no suite has seen. Push with --compression gzip, or from an engine with a "
            "graph driver."
        )
    with packed_layers(registry, state_dir() / "packed-layers", Packing.ZSTD) as layers:
        yield Sending(sending.patience, sending.names, sending.say, layers)
