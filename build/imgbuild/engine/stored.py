"""What an engine holds and says about itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

#: How an engine is asked for GPUs: by NVIDIA's runtime, or by the devices of the Container Device
#: Interface.
GpuRequest = Literal["nvidia", "cdi"]


@dataclass(frozen=True)
class EngineVersion:
    """The engine and how it stores images."""

    version: str
    api: str
    storage_driver: str
    #: True: images are manifests in containerd; False: the classic graph driver.
    containerd_store: bool
    root_dir: str
    os: str
    architecture: str
    #: How containers can have NVIDIA's GPUs; None where the engine offers none.
    gpus: GpuRequest | None = None


@dataclass(frozen=True)
class StoredImage:
    """One image of the engine. ``size`` is in bytes, ``created`` in seconds since 1970.

    ``layers`` are the sha256 of the layers' tar files, the lowest first: the same on every engine,
    which the id is not. Only ``inspect`` tells them.
    """

    id: str
    tags: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    size: int = 0
    created: int = 0
    layers: tuple[str, ...] = ()


class StoredContainer(NamedTuple):
    """One container, running or not. ``created`` is in seconds since 1970."""

    id: str
    labels: Mapping[str, str]
    created: int


class StoredNetwork(NamedTuple):
    """One network of containers."""

    id: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class RunOptions:
    """How a container is started, where the defaults do not fit.

    ``network`` is an engine network, ``none`` or ``host``; ``gpus`` asks for all of them, in the
    way that the engine's version tells; ``shm_bytes`` is the size of ``/dev/shm`` (the engine's
    64 MB is too small for MPI).
    """

    name: str | None = None
    entrypoint: Sequence[str] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    hostname: str | None = None
    network: str | None = None
    init: bool = False
    shm_bytes: int | None = None
    gpus: GpuRequest | None = None
