"""Images for caches to keep, on an engine in memory."""

import hashlib

from fake_engine import FakeEngine

from imgbuild.caches.archive import CONFIG, LoadableImage, archive, part_of
from imgbuild.caches.protocol import WantedImage
from imgbuild.caches.stream import as_file
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY

LAYER = "application/vnd.oci.image.layer.v1.tar"


def wanted(name: str = "tf-2.2-cpu-debian", inputs: str = "a") -> WantedImage:
    return WantedImage(name, f"sha256:{inputs * 64}", "imgbuild/tensorflow")


def add_image(
    engine: FakeEngine, image: WantedImage, *layers: bytes, name: str | None = None
) -> str:
    """Load an image of these layers into the engine, as a build would leave it."""
    import json

    labels = {
        NAME: name or image.name,
        INPUT_DIGEST: image.input_digest,
        REPOSITORY: image.repository,
    }
    ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    config = json.dumps({"config": {"Labels": labels}, "rootfs": {"diff_ids": ids}}).encode()
    parts = tuple(part_of(layer, LAYER) for layer in layers)
    (image_id,) = engine.load(as_file(archive([LoadableImage(part_of(config, CONFIG), parts)])))
    return image_id
