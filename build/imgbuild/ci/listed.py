"""The images that go to CI: which, why, and in which shard. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from imgbuild.ci.shards import Shard
from imgbuild.matrix.images import Image


@dataclass(frozen=True)
class Listed:
    """One image, why it is listed, and the digest that a build here will find.

    ``digest`` is None where the image's base is made here and is not made yet.
    """

    image: Image
    digest: str | None
    reason: str
    shard: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what ``--format json`` prints."""
        found = {
            "name": self.image.name,
            "tensorflow": self.image.tensorflow,
            "variant": self.image.variant,
            "stack": self.image.stack,
            "mpi": self.image.mpi_name,
            "input_digest": self.digest,
            "reason": self.reason,
        }
        return found if self.shard is None else {**found, "shard": self.shard}


@dataclass(frozen=True)
class Job:
    """One job of CI: the images it builds, and the words that ``imgbuild build`` takes for them.

    ``label`` is the image's name, or the shard's.
    """

    label: str
    images: tuple[Image, ...]
    sharded: bool

    @property
    def names(self) -> str:
        """The images' names, with blanks between them."""
        return " ".join(image.name for image in self.images)

    @property
    def options(self) -> str:
        """What ``imgbuild build``, ``test`` and ``push`` take for exactly these images."""
        return " ".join(f"--name {image.name}" for image in self.images)

    @property
    def has_gpu(self) -> bool:
        """Whether one of the images is of the gpu variant, whose suites want a GPU."""
        return any(image.variant == "gpu" for image in self.images)


def jobs(listed: Sequence[Listed], shards: Sequence[Shard] | None) -> tuple[Job, ...]:
    """Return one job for each shard; without shards, one for each image."""
    if shards is None:
        return tuple(Job(one.image.name, (one.image,), sharded=False) for one in listed)
    images: Mapping[str, Image] = {one.image.name: one.image for one in listed}
    return tuple(
        Job(shard.label, tuple(images[name] for name in shard.images), sharded=True)
        for shard in shards
    )
