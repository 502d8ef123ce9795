"""A client for a container engine, based on docker-py."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import socket
import tarfile
import threading
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.engine.discovery import DEFAULT_HOST, docker_command, resolve_host
from imgbuild.engine.faults import answered_error, engine_error, translate_errors
from imgbuild.engine.types import (
    AMD64,
    EngineVersion,
    GpuRequest,
    LabelledObject,
    Layer,
    StoredImage,
    engine_version,
    stored_image,
)
from imgbuild.matrix.known_names import parse_known_name
from imgbuild.net.addresses import has_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from docker import APIClient

    from imgbuild.core.settings import EngineSettings

#: The longest time without data from the engine, in seconds: for an ordinary request, and while it
#: unpacks a large layer or removes gigabytes of build cache.
ANSWER_SECONDS, WORK_SECONDS = 60, 900
#: An upper limit for the headers of the first entry of a tar archive, in bytes.
_HEADERS = 1 << 20
#: Device requests for all GPUs, as ``docker run`` sends them for ``--gpus all`` and ``--device``.
_GPUS: dict[str, dict[str, Any]] = {
    "nvidia": {"count": -1, "capabilities": [["gpu"]]},
    "cdi": {"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"]},
}


def family_hint(reference: str) -> str:
    """Return a sentence with the options for this family's image, and a space after it.

    It is empty unless the name is that of another publisher's TensorFlow or Horovod image.
    """
    known = parse_known_name(reference)
    if known is None:
        return ""
    version, variant = known
    options = f"--tf {version} --{variant}" if variant else f"--tf {version}"
    return f"For an image of this family, use {options} instead. "


class Engine:
    """A connection to an engine, opened at the first call.

    Every method raises `MachineError` if the engine cannot be reached.
    """

    def __init__(self, host: str | None) -> None:
        self.host = host
        self._client: APIClient | None = None
        #: Images are tested in parallel, and docker-py does not promise that threads may share it.
        self._lock = threading.RLock()

    @contextmanager
    def _api(self, silence: int = ANSWER_SECONDS) -> Iterator[APIClient]:
        """Lock and yield the connection; ``silence`` limits the time without data, in seconds."""
        with self._lock, translate_errors(self.host):
            if self._client is None:
                self._client = _connect(self.host)
            self._client.timeout = silence
            yield self._client

    def _get(
        self, path: str, silence: int = ANSWER_SECONDS, *, may_be_gone: bool = False, **filters: str
    ) -> Any:  # noqa: ANN401
        """Return the JSON of a list whose entries match all ``filters``.

        An engine on a local socket is asked without docker-py. Importing docker-py takes 0.25 s of
        processor time (measured 2026-11-22 with docker 7.1), and a build that has nothing to do may
        take twice that. Without a version in the path, the engine uses its newest API.

        ``may_be_gone``: return an empty list for status 404.
        """
        values = {name: [value] for name, value in filters.items()}
        path += f"{'&' if '?' in path else '?'}filters={quote(json.dumps(values))}"
        status, body = self._answer(path, silence)
        if status == http.client.NOT_FOUND and may_be_gone:
            return []
        if status != http.client.OK:
            said = str(body["message"]).rstrip(".")
            raise answered_error(said, self.host, refused=status < 500)
        return body

    def _answer(self, path: str, silence: int) -> tuple[int, Any]:
        address = self.host or DEFAULT_HOST
        if not address.startswith("unix://"):
            with self._api(silence) as api:
                answer = api.get(f"{api.base_url}{path}", timeout=silence)
                return answer.status_code, answer.json()
        try:
            with closing(_SocketConnection(address.removeprefix("unix://"), silence)) as connection:
                connection.request("GET", path)
                response = connection.getresponse()
                return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise engine_error(error, self.host) from error

    def _remove(self, act: Callable[[APIClient], object], in_use: int = 0) -> bool:
        """Remove an object that may be gone already; return False for the status ``in_use``."""
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
        with self._api() as api:
            return engine_version(api.info())

    def images(self, label: str) -> list[StoredImage]:
        """List the images with ``label`` in one request; docker-py sends another for each image."""
        return [stored_image(entry) for entry in self._get("/images/json", label=label)]

    def find_named(self, repository: str) -> list[StoredImage]:
        """List the images with a name in ``repository``."""
        return [stored_image(entry) for entry in self._get("/images/json", reference=repository)]

    def inspect(self, reference: str) -> StoredImage | None:
        """Return the image with this name or id; None if the engine does not have it.

        InputError: the text can be neither a name nor an id.
        """
        from docker.errors import NotFound  # noqa: PLC0415

        if not reference:
            raise InputError("The name of an image is empty. Give a name or an id.")
        if not all(part.strip(".") for part in reference.split("/")):  # another API path
            raise InputError(f"{reference!r} is not the name of an image. Give a name or an id.")
        with self._api() as api:
            try:
                return stored_image(api.inspect_image(reference))  # type: ignore[no-untyped-call]
            except NotFound:
                return None

    def need(self, reference: str, remedy: str = "") -> StoredImage:
        """Return an image that the engine must have.

        InputError: the engine does not have it. ``remedy`` ends the message; by default it shows
            how to pull the image.
        """
        if stored := self.inspect(reference):
            return stored
        if not remedy:
            pull = f"{docker_command(self.host)} pull {reference}"
            remedy = f"imgbuild pulls only names that begin with a registry. If one has it: {pull}"
            remedy = f"{family_hint(reference)}{remedy}"
        address = self.host or "its default address"
        raise InputError(f"The engine at {address} has no image {reference}. {remedy}")

    def history(self, image_id: str) -> list[Layer]:
        """Return the steps that made an image, newest first; not every step made a layer.

        The list is empty if the image is gone, because another build may have replaced it since it
        was listed.
        """
        steps = self._get(f"/images/{quote(image_id)}/history", may_be_gone=True)
        return [Layer(None, step["Size"] or 0, step["CreatedBy"] or "") for step in steps]

    def configuration(self, image_id: str) -> Mapping[str, Any]:
        """Return an image's settings for its containers: variables, labels, command, user."""
        configuration: Mapping[str, Any] = self._get(f"/images/{quote(image_id)}/json")["Config"]
        return configuration

    def save(self, image_id: str) -> Iterator[bytes]:
        """Yield the image as pieces of an archive that `load` accepts."""
        with self._api(WORK_SECONDS) as api:
            yield from api.get_image(image_id)

    def tag(self, image_id: str, reference: str) -> None:
        repository, tag = _split_reference(reference)
        with self._api() as api:
            api.tag(image_id, repository, tag)

    def untag(self, reference: str) -> None:
        """Remove one name of an image; an id is refused, because it would remove all names."""
        name = ":".join(_split_reference(reference))
        self._remove(lambda api: api.remove_image(name))

    def discard(self, image_id: str) -> bool:
        """Remove an image that no name and no container uses; return whether it is gone."""
        stored = self.inspect(image_id)
        if stored is None:
            return True
        if stored.tags:
            return False
        return self._remove(lambda api: api.remove_image(stored.id), in_use=409)

    def load(self, archive: BinaryIO) -> tuple[str, ...]:
        """Load an archive; return the names of its images, or the ids of images without names."""
        with self._api(WORK_SECONDS) as api:
            messages = self._check_messages(api.load_image(archive))  # type: ignore[no-untyped-call]
            said = "".join(str(message.get("stream") or "") for message in messages)
        return tuple(re.findall(r"^Loaded image(?: ID)?: (\S+)", said, re.MULTILINE))

    def can_pull(self, reference: str) -> bool:
        """Return whether the engine has an image, or its registry offers it without a login."""
        path = f"/distribution/{quote(reference)}/json"
        return bool(self.inspect(reference)) or self._answer(path, ANSWER_SECONDS)[0] == 200

    def pull(self, reference: str, *, pinned: bool = False, platform: str | None = AMD64) -> None:
        """Pull an image for one platform; None is the engine's own, if there is an image for it.

        ``pinned`` is for the base images of the matrix: it allows a name without a registry if the
        name has a digest, because some of them are on Docker Hub.

        InputError: the name has no registry, so it can be anybody's image on Docker Hub.
        """
        if not has_registry(reference) and not (pinned and "@sha256:" in reference):
            raise InputError(
                f"The engine has no image {reference}. {family_hint(reference)}imgbuild does "
                "not pull names without a registry, because on Docker Hub they can be anybody's. "
                f"To pull it from Docker Hub, write docker.io/{reference}."
            )
        self._pull(reference, platform)

    def need_or_pull(self, reference: str, log: Callable[[str], None]) -> StoredImage:
        """Return an image; pull it if the engine does not have it. Raises the errors of `pull`."""
        if stored := self.inspect(reference):
            return stored
        if has_registry(reference):
            log(f"pulling {reference}")
        self.pull(reference, platform=None)
        return self.need(reference)

    def _pull(self, reference: str, platform: str | None) -> None:
        repository, tag = _split_reference(reference)
        with self._api(WORK_SECONDS) as api:
            stream = api.pull(repository, tag, stream=True, decode=True, platform=platform)
            for _ in self._check_messages(stream):
                pass

    def push(
        self, reference: str, on_message: Callable[[Mapping[str, object]], None] = lambda _: None
    ) -> None:
        """Push an image to its registry with the Docker client's login."""
        repository, tag = _split_reference(reference)
        with self._api(WORK_SECONDS) as api:
            for message in self._check_messages(
                api.push(repository, tag, stream=True, decode=True)
            ):
                on_message(message)

    def start(  # noqa: PLR0913 - the options of a container
        self,
        image: str,
        *,
        command: Sequence[str],
        labels: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
        network: str | None = None,
        shm_bytes: int | None = None,
        gpus: GpuRequest | None = None,
    ) -> str:
        """Start a container and return its id.

        - ``network``: a network of the engine, ``none`` or ``host``
        - ``shm_bytes``: size of ``/dev/shm``; the engine's default of 64 MB is too small for MPI
        - ``gpus``: request all GPUs in this way, see `EngineVersion.gpus`
        """
        from docker.types import DeviceRequest  # noqa: PLC0415

        devices = [DeviceRequest(**_GPUS[gpus])] if gpus else None
        with self._api() as api:
            created = api.create_container(
                image,
                list(command),
                labels=dict(labels),
                environment=dict(environment or {}),
                host_config=api.create_host_config(
                    network_mode=network,
                    shm_size=shm_bytes,
                    device_requests=devices,
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
        """Stop and remove a container and its anonymous volumes."""
        self._remove(lambda api: api.remove_container(container, v=True, force=True))

    def copy_out(
        self, image_id: str, path: str, *, labels: Mapping[str, str], limit: int
    ) -> bytes | None:
        """Return a file of an image without running it; None if it has no such regular file.

        The engine needs a container for this, which gets ``labels`` and never starts.

        CheckFailedError: the file has more than ``limit`` bytes, or its archive is damaged.
        """
        from docker.errors import NotFound  # noqa: PLC0415

        with self._api(WORK_SECONDS) as api:
            container = str(api.create_container(image_id, ["none"], labels=dict(labels))["Id"])
            try:
                stream, _ = api.get_archive(container, path)
                return read_first_entry(stream, path, limit)
            except NotFound:
                return None
            finally:
                self.remove_container(container)

    def containers(self, label: str) -> list[LabelledObject]:
        """List the containers with ``label``, running and stopped."""
        containers = self._get("/containers/json?all=1", label=label)
        return [LabelledObject(c["Id"], c["Labels"] or {}, c["Created"]) for c in containers]

    def in_use(self, image_id: str) -> bool:
        """Return whether a container uses the image, or an image that was built on it."""
        return bool(self._get("/containers/json?all=1", ancestor=image_id))

    def networks(self, label: str) -> list[LabelledObject]:
        networks = self._get("/networks", label=label)
        return [LabelledObject(network["Id"], network["Labels"] or {}) for network in networks]

    def remove_network(self, network: str) -> None:
        """Remove a network, unless a container is connected to it."""
        self._remove(lambda api: api.remove_network(network), in_use=403)

    def copy_in(self, container: str, archive: bytes, path: str) -> None:
        """Unpack a tar archive in the folder ``path`` of a container."""
        with self._api() as api:
            if not api.put_archive(container, path, archive):
                raise MachineError(f"The engine did not unpack an archive in {container}:{path}.")

    def build_cache(self) -> list[int]:
        """Return the size of each record of BuildKit's cache in bytes, without sizing any image."""
        usage = self._get("/system/df?type=build-cache", WORK_SECONDS)
        return [int(record["Size"]) for record in usage.get("BuildCache") or ()]

    def empty_build_cache(self) -> None:
        """Remove BuildKit's cache, also of other projects, except what a running build uses."""
        with self._api(WORK_SECONDS) as api:
            api.prune_builds(all=True)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _check_messages(self, stream: Iterable[object]) -> Iterator[Mapping[str, object]]:
        """Yield the messages of a stream and raise the errors in it, which docker-py does not."""
        for message in stream:
            if isinstance(message, dict):
                if message.get("error"):
                    raise answered_error(str(message["error"]), self.host, refused=True)
                yield message


def read_first_entry(pieces: Iterable[bytes], path: str, limit: int) -> bytes | None:
    """Return the content of a tar archive's first entry; None if it is not a regular file.

    CheckFailedError: the entry has more than ``limit`` bytes, or the archive is damaged.
    """
    content = bytearray()
    for piece in pieces:
        content += piece
        if len(content) > limit + _HEADERS:
            break
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            entry = archive.next()
            if entry is None or not entry.isreg():
                return None
            if entry.size > limit:
                raise CheckFailedError(f"{path} in the image has more than {limit >> 20} MiB.")
            file = archive.extractfile(entry)
            return file.read() if file else None
    except (tarfile.TarError, EOFError) as error:
        raise CheckFailedError(f"{path} in the image cannot be read: {error}.") from error


def open_engine(settings: EngineSettings) -> closing[Engine]:
    """Return the engine of the settings, closed after the block; raises as `resolve_host`."""
    return closing(Engine(resolve_host(settings)))


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connect(host: str | None) -> APIClient:
    from docker import APIClient  # noqa: PLC0415
    from docker.utils import kwargs_from_env  # noqa: PLC0415

    tls = kwargs_from_env(environment=dict(os.environ)).get("tls", False)
    address = host or DEFAULT_HOST
    if address.startswith("unix://"):
        Path(address.removeprefix("unix://")).stat()  # its error is clearer than docker-py's
    try:
        return APIClient(
            base_url=host,
            version="auto",
            timeout=ANSWER_SECONDS,
            tls=tls if address.startswith(("tcp://", "https://")) else False,
            use_ssh_client=True,
        )
    except ValueError as error:  # the address is invalid, for example tcp://[::1
        raise engine_error(error, host) from error


def _split_reference(reference: str) -> tuple[str, str]:
    """Return the repository, and the tag or digest; `InputError` for an image id."""
    from docker.utils import parse_repository_tag  # noqa: PLC0415

    repository, tag = parse_repository_tag(reference)
    if not repository or repository == "sha256":
        raise InputError(f"{reference!r} is an image id. Give a name instead, for example app:1.0.")
    return str(repository), str(tag or "latest")
