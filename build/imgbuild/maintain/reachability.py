"""Check that all inputs except Python packages can be downloaded and match their pins."""

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Literal

from imgbuild.core.errors import CheckFailedError, ImgbuildError
from imgbuild.core.files import work_folder
from imgbuild.core.process import NOT_FOUND
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.core.yaml_file import Location
from imgbuild.dockerfile.variables import NVIDIA_UPSTREAMS
from imgbuild.inputs.signed_packages import gpgv
from imgbuild.inputs.upstream_files import find_image
from imgbuild.locks.conda import conda_packages
from imgbuild.maintain.compare import Contradiction
from imgbuild.matrix.images import Image
from imgbuild.net.http import HttpClient, TransientError
from imgbuild.net.sites import Sites

State = Literal["verified", "reachable", "unlocked", "not reachable from here", "differs"]
AWAY: State = "not reachable from here"


@dataclass(frozen=True)
class OtherInput:
    """A download and the result of its check.

    - ``url``: for a base image, NAME@sha256:DIGEST
    - ``sha256``: None if no digest is pinned
    - ``place``: the location of the pin in matrix.yaml
    - ``signed``: whether it is the signed index of a package repository
    - ``keyring``: the keyring that verifies the index
    - ``detail``: a short reason
    """

    name: str
    url: str
    sha256: str | None
    place: Location
    signed: bool = False
    keyring: Path | None = None
    state: State = AWAY
    detail: str = ""
    bytes_read: int = 0
    seconds: float = 0.0


def list_other_inputs(images: Sequence[Image], project: Project, sites: Sites) -> list[OtherInput]:
    """Return all downloads, conda packages, package repositories and base images of images."""
    files = [
        OtherInput(name, source.url, source.sha256, ("sources", name, "sha256"))
        for name, source in images[0].matrix.sources.items()
    ]
    bases = []
    for image in images:
        files += _conda_inputs(image, project)
        files += _repository_inputs(image, project, sites.settings)
        base = sites.settings.base_for(image.os_name, image.os.image)
        if base.image:
            place = ("operating_systems", image.os_name, "image")
            bases.append(OtherInput(f"base {image.os_name}", base.image, sha256=None, place=place))
    inputs = []
    for file in dict.fromkeys(files):
        name = file.url.rsplit("/", 1)[-1]
        expected = sites.settings.substitutes.get(name, file.sha256)
        inputs.append(replace(file, url=sites.address(file.url), sha256=expected))
    return [*dict.fromkeys((*inputs, *bases))]


def _conda_inputs(image: Image, project: Project) -> Iterator[OtherInput]:
    version = image.version_of("python")
    packages = conda_packages(version, image.python, project.locks)
    for index, (url, sha256) in enumerate(packages.items()):
        _, file = url.rsplit("/", 1)
        name = file.removesuffix(".tar.bz2")
        place = ("python", version, "packages", index)
        yield OtherInput(name, url, sha256, place)


def _repository_inputs(image: Image, project: Project, settings: Settings) -> Iterator[OtherInput]:
    """Yield the signed indexes of the repositories that the image installs packages from."""
    upstreams = image.matrix.upstream_urls
    system = image.os
    if system.distribution == "ubuntu" and "ubuntu" in upstreams:
        url = f"{upstreams['ubuntu'].rstrip('/')}/dists/{system.suite}/InRelease"
        place: Location = ("upstreams", "ubuntu", "url")
        yield OtherInput(f"ubuntu {system.suite}", url, sha256=None, place=place, signed=True)
    for name in NVIDIA_UPSTREAMS if image.apt_cuda else ():
        key = image.matrix.upstreams[name].keyring
        mirror = settings.mirrors.get(name)
        if key and name in upstreams:
            url = f"{upstreams[name].rstrip('/')}/{system.nvidia}/x86_64/InRelease"
            own = mirror.keyring if mirror else None
            keyring = Path(own) if own else project.keyrings / key.file
            place = ("upstreams", name, "keyring")
            title = f"{name} {system.nvidia}"
            yield OtherInput(title, url, sha256=None, place=place, signed=True, keyring=keyring)


def check_input(client: HttpClient, sites: Sites, download: bool, item: OtherInput) -> OtherInput:
    """Check whether an input is reachable, and with ``download``, whether its content matches."""
    begin = time.monotonic()
    try:
        if "@sha256:" in item.url:
            checked = _check_base(item, sites)
        elif item.keyring:
            checked = _check_index(client, item, item.keyring)
        else:
            checked = _check_file(client, item, whole=download and not item.signed)
    except (TransientError, ImgbuildError) as error:
        # Keep only the cause, because the row already names the input.
        first = str(error).partition(". ")[0]
        cause = (first.partition(" failed: ")[2] or first).partition(" (")[0]
        checked = replace(item, detail=cause.removeprefix("no connection: ")[-40:])
    return replace(checked, seconds=time.monotonic() - begin)


def _check_base(item: OtherInput, sites: Sites) -> OtherInput:
    """Check that the registry has the base image with its digest, without reading layers."""
    try:
        _, manifest = find_image(item.url, sites)
        _, *layers = manifest.sizes()
    except CheckFailedError as error:
        return replace(item, state="differs", detail=str(error))
    detail = f"manifest matches, {sum(layers) / 1e6:.0f} MB of layers"
    return replace(item, state="verified", detail=detail)


def _check_index(client: HttpClient, item: OtherInput, keyring: Path) -> OtherInput:
    """Check the signed index of a repository."""
    answer = client.ask("GET", item.url)
    if answer.status != HTTPStatus.OK:
        return replace(item, detail=f"HTTP status {answer.status}")
    state, detail = verify_signature(answer.body, keyring)
    return replace(item, state=state, detail=detail, bytes_read=len(answer.body))


def _check_file(client: HttpClient, item: OtherInput, *, whole: bool) -> OtherInput:
    """Check that a file is reachable; with ``whole``, compare its content."""
    headers = {} if whole else {"Range": "bytes=0-0"}
    with client.stream("GET", item.url, headers) as response:
        if not response.ok:
            return replace(item, detail=f"{response.status_code} {response.reason}")
        if not whole:
            is_pinned = item.sha256 or item.signed
            return replace(item, state="reachable" if is_pinned else "unlocked")
        digest = hashlib.file_digest(response.raw, "sha256").hexdigest()
        item = replace(item, bytes_read=response.raw.tell())
    if item.sha256 == digest:
        return replace(item, state="verified")
    state: State = "differs" if item.sha256 else "unlocked"
    return replace(item, state=state, detail=f"sha256 {digest}")


def verify_signature(content: bytes, keyring: Path) -> tuple[State, str]:
    """Verify an InRelease file with gpgv; return its state and a short reason."""
    if not content.startswith(b"-----BEGIN PGP SIGNED MESSAGE-----"):
        return "differs", "no signed index"
    with work_folder("signature") as folder:
        path = folder / "InRelease"
        path.write_bytes(content)
        result = gpgv([keyring], str(path))
    if result.code == NOT_FOUND:
        return "reachable", "signature not checked: gpgv is not installed"
    if result.ok:
        return "verified", "signature valid"
    errors = " ".join(result.errors.split())
    return "differs", f"an invalid signature: {errors[-80:]}"


def compare_inputs(inputs: Iterable[OtherInput]) -> Iterator[Contradiction]:
    for item in inputs:
        if item.state != "differs":
            continue
        change = "find out which one is right before you change the pin"
        if item.keyring:
            change = "the key may have been rotated: verify the new key before you trust it"
        evidence = f"{item.url} has {item.detail}"
        yield Contradiction("sha256", item.name, item.place, evidence, change)
