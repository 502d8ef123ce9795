"""The values of Docker's API, and how its JSON is read into them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

Answer = Mapping[str, Any]
#: The platform of every image, whichever machine builds it.
IMAGE_PLATFORM = "linux/amd64"
#: Ways to request GPUs: NVIDIA's runtime, or devices of the Container Device Interface.
GpuRequest = Literal["nvidia", "cdi"]


@dataclass(frozen=True)
class EngineVersion:
    """The engine and how it stores images."""

    version: str
    storage_driver: str
    #: True: images are manifests in containerd; False: the classic graph driver.
    containerd_store: bool
    root_dir: str
    architecture: str
    #: How containers can have NVIDIA's GPUs; None where the engine offers none.
    gpus: GpuRequest | None = None


@dataclass(frozen=True)
class StoredImage:
    """One image of the engine. ``size`` is in bytes, ``created`` in seconds since 1970.

    ``layers`` are the sha256 of the layers' tar files, the lowest first: the same on every engine,
    which the id is not; ``user`` is whom containers run as. Only ``inspect`` has both. ``digests``
    are references by digest under which registries have the image.
    """

    id: str
    tags: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    size: int = 0
    created: int = 0
    layers: tuple[str, ...] = ()
    user: str = ""
    digests: tuple[str, ...] = ()


class Layer(NamedTuple):
    """One layer of an image, and the step that made it; ``size`` is in bytes, unpacked.

    ``diff_id`` is the sha256 of its tar file, or None if unknown. A graph driver counts the bytes
    of files, a containerd store blocks on disk.
    """

    diff_id: str | None
    size: int
    made_by: str

    @property
    def key(self) -> str:
        """The identity of the layer: two images with the same key share it."""
        return self.diff_id or f"{self.size} {self.made_by}"


class LabelledObject(NamedTuple):
    """A network, or a container, running or not; ``created`` is in seconds since 1970, or 0."""

    id: str
    labels: Mapping[str, str]
    created: int = 0


def engine_version(info: Answer) -> EngineVersion:
    """Return the answer of ``/info``."""
    status = {str(pair[0]): str(pair[1]) for pair in info.get("DriverStatus") or ()}
    # The runtime goes first, since every engine knows it. Engines tell the devices of the Container
    # Device Interface from API 1.50 on.
    devices = [str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or ()]
    gpus: GpuRequest | None = None
    if "nvidia" in (info.get("Runtimes") or {}):
        gpus = "nvidia"
    elif any(device.startswith("nvidia.com/gpu=") for device in devices):
        gpus = "cdi"
    return EngineVersion(
        version=str(info.get("ServerVersion", "")),
        storage_driver=str(info.get("Driver", "")),
        # The same sign the Docker client uses (docker info shows it as "driver-type").
        containerd_store=status.get("driver-type", "").startswith("io.containerd.snapshotter"),
        root_dir=str(info.get("DockerRootDir", "")),
        architecture=str(info.get("Architecture", "")),
        gpus=gpus,
    )


def stored_image(answer: Answer) -> StoredImage:
    """Return an entry of ``/images/json``, or the answer of ``/images/NAME/json``."""
    config = answer.get("Config") or {}
    layers = (answer.get("RootFS") or {}).get("Layers")
    return StoredImage(
        id=str(answer["Id"]),
        # Engines before 25 write <none>:<none> for none.
        tags=tuple(str(tag) for tag in answer.get("RepoTags") or () if "<none>" not in str(tag)),
        labels=(config or answer).get("Labels") or {},
        size=int(answer.get("Size") or 0),
        created=_created_seconds(answer.get("Created") or 0),
        layers=tuple(map(str, layers or ())),
        user=str(config.get("User") or ""),
        digests=tuple(map(str, answer.get("RepoDigests") or ())),
    )


def _created_seconds(created: str | int) -> int:
    """Return seconds since 1970; 0 for no date (``0001-01-01``) or one after the year 9999."""
    try:
        if isinstance(created, str):
            created = int(datetime.fromisoformat(created).timestamp())
        datetime.fromtimestamp(created, UTC)
    except (ValueError, OverflowError, OSError):
        return 0
    return max(0, created)
