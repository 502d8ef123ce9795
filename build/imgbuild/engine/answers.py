"""The engine's JSON answers, read into typed values. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from imgbuild.engine.stored import (
    EngineVersion,
    GpuRequest,
    StoredContainer,
    StoredImage,
    StoredNetwork,
)

Answer = Mapping[str, Any]
_LOADED = ("Loaded image: ", "Loaded image ID: ")


def engine_version(version: Answer, info: Answer) -> EngineVersion:
    """Return the answers of ``/version`` and ``/info`` as one value."""
    status = {str(pair[0]): str(pair[1]) for pair in info.get("DriverStatus") or ()}
    return EngineVersion(
        version=str(version.get("Version", "")),
        api=str(version.get("ApiVersion", "")),
        storage_driver=str(info.get("Driver", "")),
        # The same sign the Docker client uses (docker info shows it as "driver-type").
        containerd_store=status.get("driver-type", "").startswith("io.containerd.snapshotter"),
        root_dir=str(info.get("DockerRootDir", "")),
        os=str(info.get("OSType", version.get("Os", ""))),
        architecture=str(info.get("Architecture", version.get("Arch", ""))),
        gpus=_gpus(info),
    )


def listed_image(answer: Answer) -> StoredImage:
    """Return one entry of ``/images/json``."""
    return StoredImage(
        id=str(answer["Id"]),
        tags=_tags(answer),
        labels=labels_of(answer.get("Labels")),
        size=int(answer.get("Size") or 0),
        created=int(answer.get("Created") or 0),
    )


def inspected_image(answer: Answer) -> StoredImage:
    """Return the answer of ``/images/NAME/json``, whose fields differ from the list's."""
    return StoredImage(
        id=str(answer["Id"]),
        tags=_tags(answer),
        labels=labels_of((answer.get("Config") or {}).get("Labels")),
        size=int(answer.get("Size") or 0),
        created=seconds_of(str(answer.get("Created") or "")),
        layers=tuple(str(one) for one in (answer.get("RootFS") or {}).get("Layers") or ()),
    )


def instructions(entries: Iterable[Answer]) -> list[str]:
    """Return what ``/images/NAME/history`` says that an image was made by."""
    return [str(one.get("CreatedBy") or "") for one in entries]


def listed_container(answer: Answer) -> StoredContainer:
    """Return one entry of ``/containers/json``."""
    return StoredContainer(
        id=str(answer["Id"]),
        labels=labels_of(answer.get("Labels")),
        created=int(answer.get("Created") or 0),
    )


def listed_network(answer: Answer) -> StoredNetwork:
    """Return one entry of ``/networks``."""
    return StoredNetwork(id=str(answer["Id"]), labels=labels_of(answer.get("Labels")))


def loaded(messages: Iterable[Answer]) -> Iterator[str]:
    """Yield the names, or ids of nameless images, that ``/images/load`` reports."""
    for message in messages:
        for line in str(message.get("stream") or "").splitlines():
            for start in _LOADED:
                if line.startswith(start):
                    yield line.removeprefix(start).strip()


def _gpus(info: Answer) -> GpuRequest | None:
    """Return how to ask for GPUs: the runtime first, since every engine knows it.

    Engines tell the devices of the Container Device Interface from API 1.50 on.
    """
    if "nvidia" in (info.get("Runtimes") or {}):
        return "nvidia"
    devices = [str(one.get("ID", "")) for one in info.get("DiscoveredDevices") or ()]
    return "cdi" if any(name.startswith("nvidia.com/gpu=") for name in devices) else None


def _tags(answer: Answer) -> tuple[str, ...]:
    """Return the names; engines before 25 write ``<none>:<none>`` for none."""
    return tuple(str(tag) for tag in answer.get("RepoTags") or () if "<none>" not in str(tag))


def labels_of(found: object) -> dict[str, str]:
    """Return labels as the engine gave them; it writes ``null`` for none."""
    if not isinstance(found, Mapping):
        return {}
    return {str(key): str(value) for key, value in found.items()}


def seconds_of(timestamp: str) -> int:
    """Return seconds since 1970; an image without a date (``0001-01-01``) has 0."""
    try:
        return max(0, int(datetime.fromisoformat(timestamp).timestamp()))
    except ValueError:
        return 0
