"""The client of a container engine, through docker-py."""

from __future__ import annotations

import json
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

from imgbuild.engine.endpoint import DEFAULT_HOST
from imgbuild.engine.faults import answered_error, translated
from imgbuild.engine.types import (
    BuildCacheRecord,
    EngineVersion,
    HistoryEntry,
    RunOptions,
    StoredContainer,
    StoredImage,
    StoredNetwork,
    engine_version,
    inspected_image,
    listed_image,
    loaded,
)
from imgbuild.engine.unix_socket import get_entries, unix_socket
from imgbuild.errors import InputError, MachineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from docker import APIClient
    from docker.types import DeviceRequest

ANSWER_SECONDS = 60
#: Unpacking a large layer is one silence of the engine.
LOAD_SECONDS = 900
#: Removing gigabytes of build cache is one silence of the engine.
PRUNE_SECONDS = 900
DEFAULT_OPTIONS = RunOptions()


class Engine:
    """An engine behind a socket; it connects at the first call.

    Every method raises `MachineError` when the engine cannot be reached.
    """

    def __init__(self, host: str | None) -> None:
        self.host = host
        self._client: APIClient | None = None
        #: Images are tested side by side, and docker-py does not say that threads may share it.
        self._lock = threading.RLock()

    @contextmanager
    def _api(self, silence: int = ANSWER_SECONDS) -> Iterator[APIClient]:
        """Yield the connection; ``silence`` is the longest one in seconds."""
        with self._lock, translated(self.host):
            if self._client is None:
                self._client = _connect(self.host)
            self._client.timeout = silence
            yield self._client

    def _list(self, request: str, list_with: Callable[[APIClient], Any]) -> list[dict[str, Any]]:
        """Return a list of the engine's, without docker-py if its socket is on this machine."""
        if socket := unix_socket(self.host):
            return get_entries(socket, request, self.host, ANSWER_SECONDS)
        with self._api() as api:
            return list(list_with(api))

    def _remove(self, act: Callable[[APIClient], object], in_use: int = 0) -> bool:
        """Remove what may be gone already; return False for the status that says it is in use."""
        from docker.errors import APIError, NotFound  # noqa: PLC0415

        with self._api() as api:
            try:
                act(api)
            except NotFound:
                return True
            except APIError as error:
                if error.status_code == in_use:
                    return False
                raise
        return True

    def version(self) -> EngineVersion:
        """Return what the engine is."""
        with self._api() as api:
            return engine_version(api.version(), api.info())

    def images(self, label: str) -> list[StoredImage]:
        """Return the images with ``label``, in one call (docker-py's list makes N+1)."""
        filters = {"label": [label]}
        request = f"/images/json?filters={quote(json.dumps(filters))}"
        found = self._list(request, lambda api: api.images(filters=filters))
        return [listed_image(one) for one in found]

    def named(self, repository: str) -> list[StoredImage]:
        """Return the images that have a name in ``repository``."""
        with self._api() as api:
            return [listed_image(one) for one in api.images(name=repository)]

    def inspect(self, reference: str) -> StoredImage | None:
        """Return the image of that name or id, or ``None``.

        Raises:
            InputError: it is no name of an image.

        """
        from docker.errors import NotFound  # noqa: PLC0415

        if not reference:
            raise InputError("The name of an image is empty: give the name or id of one.")

        with self._api() as api:
            try:
                return inspected_image(api.inspect_image(reference))  # type: ignore[no-untyped-call]
            except NotFound:
                return None

    def history(self, image_id: str) -> list[HistoryEntry]:
        """Return the steps that the image was made by, the newest first."""
        request = f"/images/{quote(image_id)}/history"
        found = self._list(request, lambda api: api.history(image_id))  # type: ignore[no-untyped-call]
        return [HistoryEntry(one.get("CreatedBy") or "", one.get("Size") or 0) for one in found]

    def tag(self, image_id: str, reference: str) -> None:
        """Give an image a name."""
        repository, tag = _split(reference)
        with self._api() as api:
            api.tag(image_id, repository, tag)

    def untag(self, reference: str) -> None:
        """Take a name away; never by id, which would take every name of the image."""
        name = ":".join(_split(reference))
        self._remove(lambda api: api.remove_image(name))

    def discard(self, image_id: str) -> bool:
        """Remove an image without names; without force, so a container in use keeps it."""
        found = self.inspect(image_id)
        if found is None or found.tags:
            return found is None
        return self._remove(lambda api: api.remove_image(found.id), in_use=409)

    def load(self, archive: BinaryIO) -> tuple[str, ...]:
        """Load an archive; return the names or ids of its images."""
        with self._api(LOAD_SECONDS) as api:
            messages = api.load_image(archive)  # type: ignore[no-untyped-call]
            return tuple(loaded(self._checked(messages)))

    def pull(self, reference: str) -> None:
        """Fetch an image, by tag or by digest."""
        repository, tag = _split(reference)
        with self._api(LOAD_SECONDS) as api:
            for _ in self._checked(api.pull(repository, tag, stream=True, decode=True)):
                pass

    def push(
        self, reference: str, on_message: Callable[[Mapping[str, object]], None] | None = None
    ) -> None:
        """Send an image to its registry, with the Docker client's login for it."""
        repository, tag = _split(reference)
        with self._api(LOAD_SECONDS) as api:
            stream = api.push(repository, tag, stream=True, decode=True)
            for message in self._checked(stream):
                if on_message:
                    on_message(message)

    def start(
        self,
        image: str,
        *,
        command: Sequence[str],
        labels: Mapping[str, str],
        options: RunOptions = DEFAULT_OPTIONS,
    ) -> str:
        """Start a container and return its id."""
        with self._api() as api:
            created = api.create_container(
                image,
                list(command),
                labels=dict(labels),
                environment=dict(options.environment),
                host_config=api.create_host_config(
                    network_mode=options.network,
                    shm_size=options.shm_bytes,
                    device_requests=_gpus(options),
                ),
            )
            container = str(created["Id"])
            try:
                api.start(container)
            except BaseException:
                self.remove_container(container)
                raise
        return container

    def remove_container(self, container: str) -> None:
        """Stop and remove a container with its anonymous volumes."""
        self._remove(lambda api: api.remove_container(container, v=True, force=True))

    def containers(self, label: str) -> list[StoredContainer]:
        """Return the containers with ``label``, stopped ones too."""
        with self._api() as api:
            listed = api.containers(all=True, filters={"label": [label]})
        return [
            StoredContainer(one["Id"], one.get("Labels") or {}, one["Created"]) for one in listed
        ]

    def in_use(self, image_id: str) -> bool:
        """Return whether an image, or one built on it, has containers."""
        with self._api() as api:
            return bool(api.containers(all=True, filters={"ancestor": image_id}))

    def networks(self, label: str) -> list[StoredNetwork]:
        """Return the networks that have ``label``."""
        with self._api() as api:
            listed = api.networks(filters={"label": [label]})
        return [StoredNetwork(one["Id"], one.get("Labels") or {}) for one in listed]

    def remove_network(self, network: str) -> None:
        """Remove a network that no container is on."""
        self._remove(lambda api: api.remove_network(network), in_use=403)

    def copy_in(self, container: str, archive: bytes, path: str) -> None:
        """Unpack a tar archive below ``path``."""
        with self._api() as api:
            if not api.put_archive(container, path, archive):
                raise MachineError(f"The engine did not unpack an archive in {container}:{path}.")

    def build_cache(self) -> list[BuildCacheRecord]:
        """Ask for the disk usage of the build cache alone: images are not summed up."""
        with self._api(PRUNE_SECONDS) as api:
            url = f"{api.base_url}/v{api.api_version}/system/df"  # docker-py's df() has no type
            answer = api.get(url, params={"type": "build-cache"}, timeout=PRUNE_SECONDS)
            answer.raise_for_status()
            records = answer.json().get("BuildCache") or ()
        return [BuildCacheRecord(one["ID"], one["Size"], bool(one["InUse"])) for one in records]

    def empty_build_cache(self) -> None:
        """Remove all of BuildKit's cache that no build uses, of other projects too."""
        with self._api(PRUNE_SECONDS) as api:
            api.prune_builds(all=True)

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _checked(self, stream: Iterable[object]) -> Iterator[Mapping[str, object]]:
        """Yield the messages of a stream; docker-py does not raise the errors in it."""
        for message in stream:
            if isinstance(message, dict):
                if message.get("error"):
                    raise answered_error(str(message["error"]), self.host, refused=True)
                yield message


def _connect(host: str | None) -> APIClient:
    from docker import APIClient  # noqa: PLC0415
    from docker.utils import kwargs_from_env  # noqa: PLC0415

    tls = kwargs_from_env(environment=dict(os.environ)).get("tls", False)
    address = host or DEFAULT_HOST
    if address.startswith("unix://"):
        Path(address.removeprefix("unix://")).stat()  # a clearer error than docker-py's
    remote = host is not None and host.startswith(("tcp://", "https://"))
    return APIClient(
        base_url=host,
        version="auto",
        timeout=ANSWER_SECONDS,
        tls=tls if remote else False,
        use_ssh_client=True,
    )


def _split(reference: str) -> tuple[str, str]:
    """Return repository and tag (or digest); a bare image id is refused."""
    from docker.utils import parse_repository_tag  # noqa: PLC0415

    repository, tag = parse_repository_tag(reference)
    if not repository or repository == "sha256":
        raise InputError(f"{reference!r} is an image id where a name is needed, such as app:1.0.")
    return str(repository), str(tag or "latest")


def _gpus(options: RunOptions) -> list[DeviceRequest] | None:
    """Return the request for all GPUs, as ``docker run --gpus all`` or ``--device`` makes it."""
    from docker.types import DeviceRequest  # noqa: PLC0415

    if options.gpus == "cdi":
        return [DeviceRequest(driver="cdi", device_ids=["nvidia.com/gpu=all"])]
    return [DeviceRequest(count=-1, capabilities=[["gpu"]])] if options.gpus else None
