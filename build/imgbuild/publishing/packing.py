"""An image's content under its immutable tag, packed and sent by imgbuild itself.

An engine's push packs layers with gzip, and cannot be asked for anything else.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from imgbuild.caches.archive import CONFIG
from imgbuild.caches.saved import SavedImage, diff_ids
from imgbuild.engine.protocol import Engine
from imgbuild.errors import MachineError
from imgbuild.publishing.content import found_content
from imgbuild.publishing.names import gone
from imgbuild.publishing.packed_layers import PackedLayers
from imgbuild.registry.digest import digest_of
from imgbuild.registry.media_types import OCI_MANIFEST

_MB = 1_000_000


@dataclass(frozen=True)
class PackingSender:
    """Does what `Sender` does, with layers that imgbuild packs.

    The engine must be one whose image ids are digests of configurations: a graph driver. ``told``
    hears an image and how far it is, and may raise to end a push. The registry's own client tries
    again what may pass.
    """

    engine: Engine
    layers: PackedLayers
    told: Callable[[str, str], None]

    def send(self, name: str, image_id: str, reference: str) -> None:
        """Send an image under ``reference``, a name in the registry.

        Raises:
            CheckFailedError: the registry refuses, or has another image there.
            MachineError: the registry or the engine cannot be reached, or keeps failing.

        """
        found = self.engine.inspect(image_id)
        if found is None:
            raise gone(name, image_id)
        saved = self.layers.packed(
            self.engine,
            image_id,
            found.layers,
            lambda count: self.told(name, f"{count // _MB} MB read"),
        )
        if digest_of(saved.config) != image_id:
            raise MachineError(
                f"{name} is {image_id} to the engine, and what it saves of it is "
                f"{digest_of(saved.config)}: push with --compression gzip."
            )
        self._send_layers(name, saved)
        self._finish(saved, image_id, reference.rpartition(":")[2])

    def _send_layers(self, name: str, saved: SavedImage) -> None:
        for number, (layer, blob) in enumerate(saved.layers.items()):
            up = f"{number} of {len(saved.layers)} layers up"
            self.told(name, up)
            self.layers.send(layer, blob, partial(self._tell_sent, name, up))

    def _tell_sent(self, name: str, up: str, count: int) -> None:
        self.told(name, f"{up}, {count // _MB} MB of the next")

    def _finish(self, saved: SavedImage, image_id: str, tag: str) -> None:
        """Write the manifest, as all that it names is there, unless the tag was taken meanwhile."""
        registry = self.layers.registry
        registry.put_blob(saved.config)
        if found_content(registry, tag, image_id) is None:
            registry.put_manifest(tag, _manifest(saved), OCI_MANIFEST)


def _manifest(saved: SavedImage) -> bytes:
    config = {
        "mediaType": CONFIG,
        "digest": digest_of(saved.config),
        "size": len(saved.config),
    }
    document: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": config,
        "layers": [saved.layers[layer].descriptor() for layer in diff_ids(saved.config)],
    }
    return json.dumps(document, separators=(",", ":")).encode()
