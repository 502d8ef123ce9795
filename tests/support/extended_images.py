"""The facts of an image of `imgbuild extend`."""

from support.bench import NEW

ID, REFERENCE = "sha256:" + "1" * 64, "me/train:1"
DIGEST = "sha256:" + "d" * 64
LABELS = {
    "imgbuild.name": NEW,
    "imgbuild.extends": NEW,
    "imgbuild.input.base": "registry",
    "imgbuild.input.cpython": "source",
    "imgbuild.pin.tensorflow": "2.2.3",
    "imgbuild.snapshot.debian": "20261101T000000Z",
    "imgbuild.added.pip": "keras==2.3.1",
    "imgbuild.added.lock": "sha256:" + "c" * 64,
    "org.opencontainers.image.base.name": "registry.example.org/ml/tensorflow:2.2-cpu",
    "org.opencontainers.image.base.digest": DIGEST,
}
