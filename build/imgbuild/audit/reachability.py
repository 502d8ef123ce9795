"""Check that every input that is no Python package can be had, and is what was pinned.

Without a network this takes one connection time-out, since all are checked at once.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import requests

from imgbuild.audit.compare import Contradiction
from imgbuild.dockerfile.conda import conda_lock_name, conda_pythons, read_conda_lock
from imgbuild.errors import CheckFailedError, ImgbuildError
from imgbuild.files import work_folder
from imgbuild.http import HttpClient, TransientError
from imgbuild.inputs.base_image import find_image
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Matrix
from imgbuild.parallel import in_parallel
from imgbuild.process import NOT_FOUND, run
from imgbuild.project import Project
from imgbuild.settings import RegistryBase, Settings, Sites
from imgbuild.yaml_file import Location

State = Literal["verified", "reachable", "unlocked", "not reachable from here", "differs"]
AWAY: State = "not reachable from here"
_WORKERS = 16
_CHUNK = 1 << 20
_GPGV_SECONDS = 30
_NVIDIA = ("nvidia-cuda", "nvidia-machine-learning")


@dataclass(frozen=True)
class OtherInput:
    """Something to download. Without ``sha256`` its content is not recorded yet.

    ``place`` is where in matrix.yaml it is pinned. For a ``repository`` of packages the address is
    that of the signed index, which ``keyring`` verifies. A ``base`` image is checked by its digest.
    """

    name: str
    url: str
    sha256: str | None = None
    place: Location = ()
    keyring: Path | None = None
    repository: bool = False
    base: bool = False


@dataclass(frozen=True)
class InputState:
    """How an input was found. ``detail`` is a short cause; bytes and seconds are what it took."""

    input: OtherInput
    state: State
    detail: str = ""
    bytes_read: int = 0
    seconds: float = 0.0


def other_inputs(
    images: Sequence[Image], project: Project, settings: Settings, sites: Sites
) -> tuple[OtherInput, ...]:
    """Return every download, conda package, package repository and base image of the images.

    Raises:
        InputError: a lock of conda packages cannot be read.

    """
    matrix = images[0].matrix
    downloads = (
        *_sources(matrix),
        *_conda(matrix, project.locks),
        *(one for image in images for one in _repositories(image, project, settings)),
    )
    bases = (
        OtherInput(f"base {image.os_name}", base.image, None, place, base=True)
        for image in images
        if isinstance(base := settings.base_for(image.os_name, image.os.image), RegistryBase)
        for place in [("operating_systems", image.os_name, "image")]
    )
    here = (
        replace(
            one,
            url=sites.address(one.url),
            sha256=settings.substitutes.get(one.url.rsplit("/", 1)[-1], one.sha256),
        )
        for one in downloads
    )
    return tuple(dict.fromkeys([*here, *bases]))


def _sources(matrix: Matrix) -> Iterator[OtherInput]:
    for name, source in matrix.sources.items():
        yield OtherInput(name, source.url, source.sha256, ("sources", name, "sha256"))


def _conda(matrix: Matrix, locks: Path) -> Iterator[OtherInput]:
    for version, python in conda_pythons(matrix).items():
        lock = locks / conda_lock_name(version)
        entries = read_conda_lock(lock) if lock.exists() else {}
        for index, url in enumerate(python.packages):
            name = url.rsplit("/", 1)[1].removesuffix(".tar.bz2")
            sha256 = entries[url].sha256 if url in entries else None
            yield OtherInput(name, url, sha256, ("python", version, "packages", index))


def _repositories(image: Image, project: Project, settings: Settings) -> Iterator[OtherInput]:
    """Yield the signed index of each repository that the image installs from."""
    upstreams = image.matrix.upstreams
    ubuntu = upstreams.get("ubuntu")
    if image.os.distribution == "ubuntu" and ubuntu and ubuntu.url:
        url = f"{ubuntu.url.rstrip('/')}/dists/{image.os.suite}/InRelease"
        place: Location = ("upstreams", "ubuntu", "url")
        yield OtherInput(f"ubuntu {image.os.suite}", url, place=place, repository=True)
    for name in _NVIDIA if image.cuda else ():
        upstream, mirror = upstreams.get(name), settings.mirrors.get(name)
        if upstream and upstream.url and upstream.keyring:
            keyring = project.files / "keyrings" / upstream.keyring.file
            yield OtherInput(
                f"{name} {image.os.nvidia}",
                f"{upstream.url.rstrip('/')}/{image.os.nvidia}/x86_64/InRelease",
                place=("upstreams", name, "keyring"),
                keyring=Path(mirror.keyring) if mirror and mirror.keyring else keyring,
                repository=True,
            )


def check_inputs(
    client: HttpClient, inputs: Sequence[OtherInput], sites: Sites, *, download: bool
) -> list[InputState]:
    """Return the state of each input; all are checked at once."""
    return in_parallel(lambda one: check_input(client, one, sites, download), inputs, _WORKERS)


def check_input(client: HttpClient, item: OtherInput, sites: Sites, download: bool) -> InputState:
    """Return whether an input answers, and with ``download`` whether its content is right."""
    begin = time.monotonic()
    try:
        found = _check_base(item, sites) if item.base else _check_file(client, item, download)
    except (TransientError, ImgbuildError, requests.RequestException) as error:
        found = InputState(item, AWAY, _cause(error))
    return replace(found, seconds=time.monotonic() - begin)


def _cause(error: Exception) -> str:
    """Return the cause alone: the row names the input already."""
    first = str(error).partition(". ")[0]
    cause = (first.partition(" failed: ")[2] or first).partition(" (")[0]
    return cause.removeprefix("no connection: ")[-40:]


def _check_base(item: OtherInput, sites: Sites) -> InputState:
    """Check that a registry has a base image under its digest; layers are not read."""
    try:
        layers = find_image(item.url, sites).layers
    except CheckFailedError as error:
        return InputState(item, "differs", str(error))
    size = sum(layer["size"] for layer in layers) / 1e6
    return InputState(item, "verified", f"manifest right, {size:.0f} MB of layers")


def _check_file(client: HttpClient, item: OtherInput, download: bool) -> InputState:
    whole = download or item.keyring is not None  # an index is small, and its signature counts
    with client.stream("GET", item.url, {} if whole else {"Range": "bytes=0-0"}) as response:
        if not response.ok:
            return InputState(item, AWAY, f"{response.status_code} {response.reason}")
        if not whole:
            known = item.sha256 or item.repository
            return InputState(item, "reachable" if known else "unlocked")
        if item.keyring:
            content = response.content
            state, detail = verify_signature(content, item.keyring)
            return InputState(item, state, detail, len(content))
        digest, size = hashlib.sha256(), 0
        for chunk in response.iter_content(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    if item.sha256 == digest.hexdigest():
        return InputState(item, "verified", "", size)
    state = "differs" if item.sha256 else "unlocked"
    return InputState(item, state, f"sha256 {digest.hexdigest()}", size)


def verify_signature(content: bytes, keyring: Path) -> tuple[State, str]:
    """Return the state of an InRelease file and a short word on it, by gpgv."""
    if not content.startswith(b"-----BEGIN PGP SIGNED MESSAGE-----"):
        return "differs", "no signed index"
    with work_folder("signature") as folder:
        path = folder / "InRelease"
        path.write_bytes(content)
        command = ["gpgv", "--quiet", f"--keyring={keyring}", str(path)]
        result = run(command, timeout=_GPGV_SECONDS)
    if result.code == NOT_FOUND:
        return "reachable", "its signature was not checked: gpgv is not installed"
    if result.ok:
        return "verified", "signature right"
    return "differs", f"a signature that gpgv refuses: {' '.join(result.errors.split())[-80:]}"


def compare_inputs(states: Iterable[InputState]) -> Iterator[Contradiction]:
    """Yield the inputs whose content is not what the matrix pins."""
    for found in states:
        one = found.input
        if found.state == "differs":
            change = f"pinned is {one.sha256}: find out which is right before changing it"
            if one.keyring:
                change = "the key may have been rotated: find out before trusting another"
            evidence = f"{one.url} has {found.detail}"
            yield Contradiction("sha256", one.name, one.place, evidence, change)
