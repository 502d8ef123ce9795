"""The client of a container engine, through docker-py."""

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
    IMAGE_PLATFORM,
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

#: Longest silence of an engine in seconds: while it answers a request; while it unpacks a large
#: layer or removes gigabytes of build cache.
ANSWER_SECONDS, WORK_SECONDS = 60, 900
#: More bytes than the headers of the first entry of a tar archive.
_HEADERS = 1 << 20
#: Requests of all GPUs, as ``docker run --gpus all`` and ``--device`` send them.
_GPUS: dict[str, dict[str, Any]] = {
    "nvidia": {"count": -1, "capabilities": [["gpu"]]},
    "cdi": {"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"]},
}


def family_hint(reference: str) -> str:
    """Return a sentence on the options for the family's image, if the name is another publisher's.

    It ends with a blank.
    """
    known = parse_known_name(reference)
    if known is None:
        return ""
    version, variant = known
    options = f"--tf {version} --{variant}" if variant else f"--tf {version}"
    return f"For the image of this family, use {options} instead. "


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
        with self._lock, translate_errors(self.host):
            if self._client is None:
                self._client = _connect(self.host)
            self._client.timeout = silence
            yield self._client

    def _get(
        self, path: str, silence: int = ANSWER_SECONDS, *, may_be_gone: bool = False, **filters: str
    ) -> Any:  # noqa: ANN401
        """Return the JSON of a list, of what has all ``filters``.

        The engine on a socket of this machine is asked without docker-py. Importing that takes
        0.25 s of processor time (measured 2026-11-22 with docker 7.1), half of what a build may
        take that has nothing to do. Without a version in the path an engine speaks its newest API.
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
        with self._api() as api:
            return engine_version(api.info())

    def images(self, label: str) -> list[StoredImage]:
        """Return the images with ``label``, in one call (docker-py's list makes N+1)."""
        return [stored_image(entry) for entry in self._get("/images/json", label=label)]

    def find_named(self, repository: str) -> list[StoredImage]:
        """Return the images that have a name in ``repository``."""
        return [stored_image(entry) for entry in self._get("/images/json", reference=repository)]

    def inspect(self, reference: str) -> StoredImage | None:
        """Return the image of that name or id, or ``None``; InputError for what can be neither."""
        from docker.errors import NotFound  # noqa: PLC0415

        if not reference:
            raise InputError("The name of an image is empty: give the name or id of one.")
        if not all(part.strip(".") for part in reference.split("/")):  # another address of the API
            raise InputError(f"{reference!r} is no name of an image: give the name or id of one.")
        with self._api() as api:
            try:
                return stored_image(api.inspect_image(reference))  # type: ignore[no-untyped-call]
            except NotFound:
                return None

    def need(self, reference: str, remedy: str = "") -> StoredImage:
        """Return an image of the engine.

        InputError: there is none; ``remedy`` says what to do, by default to pull it.
        """
        if stored := self.inspect(reference):
            return stored
        if not remedy:
            pull = f"{docker_command(self.host)} pull {reference}"
            remedy = f"imgbuild pulls no image to test it; if a registry has it: {pull}"
            remedy = f"{family_hint(reference)}{remedy}"
        address = self.host or "its default"
        raise InputError(f"The engine at {address} has no image {reference}. {remedy}")

    def history(self, image_id: str) -> list[Layer]:
        """Return the steps that the image was made by, the newest first; not all made a layer.

        There are none if it is gone: another build may have replaced it since it was listed.
        """
        steps = self._get(f"/images/{quote(image_id)}/history", may_be_gone=True)
        return [Layer(None, step["Size"] or 0, step["CreatedBy"] or "") for step in steps]

    def configuration(self, image_id: str) -> Mapping[str, Any]:
        """Return what containers of an image run with: variables, labels, command, user."""
        configuration: Mapping[str, Any] = self._get(f"/images/{quote(image_id)}/json")["Config"]
        return configuration

    def save(self, image_id: str) -> Iterator[bytes]:
        """Yield the pieces of the archive that `load` takes."""
        with self._api(WORK_SECONDS) as api:
            yield from api.get_image(image_id)

    def tag(self, image_id: str, reference: str) -> None:
        repository, tag = _split_reference(reference)
        with self._api() as api:
            api.tag(image_id, repository, tag)

    def untag(self, reference: str) -> None:
        """Take a name away; never by id, which would take every name of the image."""
        name = ":".join(_split_reference(reference))
        self._remove(lambda api: api.remove_image(name))

    def discard(self, image_id: str) -> bool:
        """Remove an image without names; without force, so a container in use keeps it."""
        stored = self.inspect(image_id)
        if stored is None:
            return True
        if stored.tags:
            return False
        return self._remove(lambda api: api.remove_image(stored.id), in_use=409)

    def load(self, archive: BinaryIO) -> tuple[str, ...]:
        """Load an archive; return the names of its images, or the ids of nameless ones."""
        with self._api(WORK_SECONDS) as api:
            messages = self._check_messages(api.load_image(archive))  # type: ignore[no-untyped-call]
            said = "".join(str(message.get("stream") or "") for message in messages)
        return tuple(re.findall(r"^Loaded image(?: ID)?: (\S+)", said, re.MULTILINE))

    def can_pull(self, reference: str) -> bool:
        """Return whether the engine has an image, or its registry shows it without a login."""
        path = f"/distribution/{quote(reference)}/json"
        return bool(self.inspect(reference)) or self._answer(path, ANSWER_SECONDS)[0] == 200

    def pull(self, reference: str, *, pinned: bool = False) -> None:
        """Pull an image; ``pinned`` is for the base images of the matrix, of which some are of Hub.

        InputError: the name has no registry, so anybody's image of Docker Hub could be meant.
        """
        if not has_registry(reference) and not (pinned and "@sha256:" in reference):
            raise InputError(
                f"The engine has no image {reference}. {family_hint(reference)}A name without a "
                "registry is not pulled, "
                "because on Docker Hub it can be anybody's. To pull it from Docker Hub, write "
                f"docker.io/{reference}."
            )
        self._pull(reference)

    def _pull(self, reference: str) -> None:
        repository, tag = _split_reference(reference)
        with self._api(WORK_SECONDS) as api:
            stream = api.pull(repository, tag, stream=True, decode=True, platform=IMAGE_PLATFORM)
            for _ in self._check_messages(stream):
                pass

    def push(
        self, reference: str, on_message: Callable[[Mapping[str, object]], None] = lambda _: None
    ) -> None:
        """Send an image to its registry, with the Docker client's login for it."""
        repository, tag = _split_reference(reference)
        with self._api(WORK_SECONDS) as api:
            for message in self._check_messages(
                api.push(repository, tag, stream=True, decode=True)
            ):
                on_message(message)

    def start(  # noqa: PLR0913 - how it runs
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
        """Start a container, and return its id.

        ``network`` is an engine network, ``none`` or ``host``. ``shm_bytes`` is the size of
        ``/dev/shm``: the engine's 64 MB is too small for MPI. ``gpus`` requests all of them, in the
        way that the engine's version decides.
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
        """Stop and remove a container with its anonymous volumes."""
        self._remove(lambda api: api.remove_container(container, v=True, force=True))

    def copy_out(
        self, image_id: str, path: str, *, labels: Mapping[str, str], limit: int
    ) -> bytes | None:
        """Return a file of an image, of which nothing runs; None if it has no such regular file.

        ``labels`` are those of the container that the engine needs for it.

        CheckFailedError: the file has more than ``limit`` bytes.
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
        """Return the containers with ``label``, stopped ones too."""
        containers = self._get("/containers/json?all=1", label=label)
        return [LabelledObject(c["Id"], c["Labels"] or {}, c["Created"]) for c in containers]

    def in_use(self, image_id: str) -> bool:
        """Return whether an image, or one built on it, has containers."""
        return bool(self._get("/containers/json?all=1", ancestor=image_id))

    def networks(self, label: str) -> list[LabelledObject]:
        networks = self._get("/networks", label=label)
        return [LabelledObject(network["Id"], network["Labels"] or {}) for network in networks]

    def remove_network(self, network: str) -> None:
        """Remove a network that no container is on."""
        self._remove(lambda api: api.remove_network(network), in_use=403)

    def copy_in(self, container: str, archive: bytes, path: str) -> None:
        """Unpack a tar archive below ``path``."""
        with self._api() as api:
            if not api.put_archive(container, path, archive):
                raise MachineError(f"The engine did not unpack an archive in {container}:{path}.")

    def build_cache(self) -> list[int]:
        """Return the size of each record of BuildKit's cache, in bytes; no image is summed up."""
        usage = self._get("/system/df?type=build-cache", WORK_SECONDS)
        return [int(record["Size"]) for record in usage.get("BuildCache") or ()]

    def empty_build_cache(self) -> None:
        """Remove all of BuildKit's cache that no build uses, of other projects too."""
        with self._api(WORK_SECONDS) as api:
            api.prune_builds(all=True)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _check_messages(self, stream: Iterable[object]) -> Iterator[Mapping[str, object]]:
        """Yield the messages of a stream; docker-py does not raise the errors in it."""
        for message in stream:
            if isinstance(message, dict):
                if message.get("error"):
                    raise answered_error(str(message["error"]), self.host, refused=True)
                yield message


def read_first_entry(pieces: Iterable[bytes], path: str, limit: int) -> bytes | None:
    """Return the content of a tar archive's first entry; None if it is not a regular file.

    CheckFailedError: it has more than ``limit`` bytes, or the archive is damaged.
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
                raise CheckFailedError(f"{path} of the image has more than {limit >> 20} MiB.")
            file = archive.extractfile(entry)
            return file.read() if file else None
    except (tarfile.TarError, EOFError) as error:
        raise CheckFailedError(f"{path} of the image cannot be read: {error}.") from error


def open_engine(settings: EngineSettings) -> closing[Engine]:
    """Give the engine that the settings, else the environment, name; raises as `resolve_host`."""
    return closing(Engine(resolve_host(settings)))


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a socket of this machine."""

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
        Path(address.removeprefix("unix://")).stat()  # a clearer error than docker-py's
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
    """Return repository and tag (or digest); a bare image id is refused."""
    from docker.utils import parse_repository_tag  # noqa: PLC0415

    repository, tag = parse_repository_tag(reference)
    if not repository or repository == "sha256":
        raise InputError(f"{reference!r} is an image id where a name is needed, such as app:1.0.")
    return str(repository), str(tag or "latest")
