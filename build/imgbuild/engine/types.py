"""Values of Docker's API, and functions that read them from its JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

Answer = Mapping[str, Any]
#: The platforms that images can be for.
AMD64, ARM64 = "linux/amd64", "linux/arm64"
#: Ways to request GPUs: NVIDIA's runtime, or devices of the Container Device Interface (CDI).
GpuRequest = Literal["nvidia", "cdi"]


def machine_platform(machine: str) -> str:
    """Return the platform of a machine as Docker names it: ``linux/arm64`` for ``aarch64``."""
    return {"x86_64": AMD64, "aarch64": ARM64}.get(machine, f"linux/{machine}")


@dataclass(frozen=True)
class EngineVersion:
    """The engine's version, its image store, and its GPUs."""

    version: str
    storage_driver: str
    #: True: a containerd store, which stores manifests. False: a classic graph driver.
    containerd_store: bool
    root_dir: str
    architecture: str
    #: How a container can request NVIDIA GPUs; None if the engine offers none.
    gpus: GpuRequest | None = None

    @property
    def platform(self) -> str:
        """The platform of its machine; images may be for others."""
        return machine_platform(self.architecture)


@dataclass(frozen=True)
class StoredImage:
    """One image of the engine.

    - ``size``: in bytes
    - ``created``: in seconds since 1970; 0 if unknown
    - ``layers``: sha256 of the layers' tar files, lowest layer first; unlike the id, they are the
      same on every engine. Only ``inspect`` sets them.
    - ``user``: the user that containers run as; only ``inspect`` sets it
    - ``digests``: references by digest under which registries have the image
    - ``platform``: as Docker names it, without a variant; only ``inspect`` sets it
    """

    id: str
    tags: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    size: int = 0
    created: int = 0
    layers: tuple[str, ...] = ()
    user: str = ""
    digests: tuple[str, ...] = ()
    platform: str = AMD64


class Layer(NamedTuple):
    """One layer of an image, and the step that made it.

    ``diff_id`` is the sha256 of the layer's tar file, or None if unknown. ``size`` is the unpacked
    size in bytes: a graph driver counts the bytes of files, a containerd store counts disk blocks.
    """

    diff_id: str | None
    size: int
    made_by: str

    @property
    def key(self) -> str:
        """The identity of the layer: images that have the same key share the layer."""
        return self.diff_id or f"{self.size} {self.made_by}"


class LabelledObject(NamedTuple):
    """A network or a container. ``created`` is in seconds since 1970, and 0 for a network."""

    id: str
    labels: Mapping[str, str]
    created: int = 0


def engine_version(info: Answer) -> EngineVersion:
    """Read the answer of ``/info``."""
    status = {str(pair[0]): str(pair[1]) for pair in info.get("DriverStatus") or ()}
    # Prefer the runtime, because every engine supports it. Engines list CDI devices from API 1.50
    # on.
    devices = [str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or ()]
    gpus: GpuRequest | None = None
    if "nvidia" in (info.get("Runtimes") or {}):
        gpus = "nvidia"
    elif any(device.startswith("nvidia.com/gpu=") for device in devices):
        gpus = "cdi"
    return EngineVersion(
        version=str(info.get("ServerVersion", "")),
        storage_driver=str(info.get("Driver", "")),
        # The Docker client checks the same field ("driver-type" in docker info).
        containerd_store=status.get("driver-type", "").startswith("io.containerd.snapshotter"),
        root_dir=str(info.get("DockerRootDir", "")),
        architecture=str(info.get("Architecture", "")),
        gpus=gpus,
    )


def stored_image(answer: Answer) -> StoredImage:
    """Read an entry of ``/images/json``, or the answer of ``/images/NAME/json``."""
    config = answer.get("Config") or {}
    layers = (answer.get("RootFS") or {}).get("Layers")
    return StoredImage(
        id=str(answer["Id"]),
        # Before version 25, engines list <none>:<none> for an image without names.
        tags=tuple(str(tag) for tag in answer.get("RepoTags") or () if "<none>" not in str(tag)),
        labels=(config or answer).get("Labels") or {},
        size=int(answer.get("Size") or 0),
        created=_created_seconds(answer.get("Created") or 0),
        layers=tuple(map(str, layers or ())),
        user=str(config.get("User") or ""),
        digests=tuple(map(str, answer.get("RepoDigests") or ())),
        platform=f"linux/{answer.get('Architecture') or 'amd64'}",
    )


def _created_seconds(created: str | int) -> int:
    """Return seconds since 1970; 0 before 1970 (``0001-01-01``: no date) or after the year 9999."""
    try:
        if isinstance(created, str):
            created = int(datetime.fromisoformat(created).timestamp())
        datetime.fromtimestamp(created, UTC)
    except (ValueError, OverflowError, OSError):
        return 0
    return max(0, created)
