"""Check that every input that is no Python package can be had, and is what was pinned."""

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from imgbuild.audit.compare import Contradiction
from imgbuild.dockerfile.conda import conda_packages
from imgbuild.errors import CheckFailedError, ImgbuildError
from imgbuild.files import work_folder
from imgbuild.http import HttpClient, TransientError
from imgbuild.inputs.upstream_files import find_image
from imgbuild.matrix.images import Image
from imgbuild.process import NOT_FOUND, run
from imgbuild.project import Project
from imgbuild.settings import RegistryBase, Settings, Sites
from imgbuild.yaml_file import Location

State = Literal["verified", "reachable", "unlocked", "not reachable from here", "differs"]
AWAY: State = "not reachable from here"
_CHUNK = 1 << 20
_GPGV_SECONDS = 30
_NVIDIA = ("nvidia-cuda", "nvidia-machine-learning")


@dataclass(frozen=True)
class OtherInput:
    """Something to download. Without ``sha256`` its content is not recorded yet.

    ``place`` is where in matrix.yaml it is pinned. A ``signed`` one is the index of a repository of
    packages; ``keyring`` verifies it. The address of a base image is NAME@sha256:DIGEST.
    """

    name: str
    url: str
    sha256: str | None
    place: Location
    signed: bool = False
    keyring: Path | None = None


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
    """Return every download, conda package, package repository and base image of the images."""
    found = [
        OtherInput(name, source.url, source.sha256, ("sources", name, "sha256"))
        for name, source in images[0].matrix.sources.items()
    ]
    for image in images:
        version = image.version_of("python")
        packages = conda_packages(version, image.python, project.locks)
        for index, package in enumerate(packages):
            name = package.url.rsplit("/", 1)[1].removesuffix(".tar.bz2")
            place: Location = ("python", version, "packages", index)
            found.append(OtherInput(name, package.url, package.sha256, place))
        found += _repositories(image, project, settings)
    others = settings.substitutes
    found = [
        replace(
            one,
            url=sites.address(one.url),
            sha256=others.get(one.url.rsplit("/", 1)[-1], one.sha256),
        )
        for one in found
    ]
    for image in images:
        base = settings.base_for(image.os_name, image.os.image)
        if isinstance(base, RegistryBase):
            place = ("operating_systems", image.os_name, "image")
            found.append(OtherInput(f"base {image.os_name}", base.image, None, place))
    return tuple(dict.fromkeys(found))


def _repositories(image: Image, project: Project, settings: Settings) -> Iterator[OtherInput]:
    """Yield the signed index of each repository that the image installs from."""
    upstreams = image.matrix.upstreams
    ubuntu = upstreams.get("ubuntu")
    if image.os.distribution == "ubuntu" and ubuntu and ubuntu.url:
        url = f"{ubuntu.url.rstrip('/')}/dists/{image.os.suite}/InRelease"
        place: Location = ("upstreams", "ubuntu", "url")
        yield OtherInput(f"ubuntu {image.os.suite}", url, None, place, signed=True)
    for name in _NVIDIA if image.cuda else ():
        upstream, mirror = upstreams.get(name), settings.mirrors.get(name)
        if upstream and upstream.url and upstream.keyring:
            url = f"{upstream.url.rstrip('/')}/{image.os.nvidia}/x86_64/InRelease"
            keyring = project.files / "keyrings" / upstream.keyring.file
            if mirror and mirror.keyring:
                keyring = Path(mirror.keyring)
            place = ("upstreams", name, "keyring")
            yield OtherInput(f"{name} {image.os.nvidia}", url, None, place, True, keyring)


def check_input(client: HttpClient, sites: Sites, download: bool, item: OtherInput) -> InputState:
    """Return whether an input answers, and with ``download`` whether its content is right."""
    begin = time.monotonic()
    try:
        is_base = "@sha256:" in item.url
        found = _check_base(item, sites) if is_base else _check_file(client, item, download)
    except (TransientError, ImgbuildError) as error:
        # The cause alone: the row names the input already.
        first = str(error).partition(". ")[0]
        cause = (first.partition(" failed: ")[2] or first).partition(" (")[0]
        found = InputState(item, AWAY, cause.removeprefix("no connection: ")[-40:])
    return replace(found, seconds=time.monotonic() - begin)


def _check_base(item: OtherInput, sites: Sites) -> InputState:
    """Check that a registry has a base image under its digest; layers are not read."""
    try:
        layers = find_image(item.url, sites).document()["layers"]
    except CheckFailedError as error:
        return InputState(item, "differs", str(error))
    size = sum(layer["size"] for layer in layers) / 1e6
    return InputState(item, "verified", f"manifest right, {size:.0f} MB of layers")


def _check_file(client: HttpClient, item: OtherInput, download: bool) -> InputState:
    # An index is small, and its signature counts.
    whole = item.keyring is not None or (download and not item.signed)
    with client.stream("GET", item.url, {} if whole else {"Range": "bytes=0-0"}) as response:
        if not response.ok:
            return InputState(item, AWAY, f"{response.status_code} {response.reason}")
        if not whole:
            return InputState(item, "reachable" if item.sha256 or item.signed else "unlocked")
        if item.keyring:
            content = response.content
            return InputState(item, *verify_signature(content, item.keyring), len(content))
        digest, size = hashlib.sha256(), 0
        for chunk in response.iter_content(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    if item.sha256 == digest.hexdigest():
        return InputState(item, "verified", "", size)
    state: State = "differs" if item.sha256 else "unlocked"
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
            change = "find out which is right before changing the pin"
            if one.keyring:
                change = "the key may have been rotated: find out before trusting another"
            evidence = f"{one.url} has {found.detail}"
            yield Contradiction("sha256", one.name, one.place, evidence, change)
