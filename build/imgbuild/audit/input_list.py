"""The inputs of the matrix that do not come from the Python package index."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from imgbuild.audit.other_inputs import OtherInput
from imgbuild.audit.registry import BaseImage
from imgbuild.dockerfile.conda import conda_lock_name, conda_pythons, read_conda_lock
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Matrix
from imgbuild.project import Project
from imgbuild.settings import RegistryBase, Settings
from imgbuild.sites import Sites

_NVIDIA = ("nvidia-cuda", "nvidia-machine-learning")


@dataclass(frozen=True)
class Surroundings:
    """The checkout, and what this machine puts in place of the matrix's sites."""

    project: Project
    settings: Settings
    sites: Sites


def other_inputs(images: Iterable[Image], around: Surroundings) -> tuple[OtherInput, ...]:
    """Return every download, conda package and package repository of the images' matrix.

    Raises:
        InputError: a lock of conda packages cannot be read.

    """
    chosen = tuple(images)
    matrix = chosen[0].matrix
    found = (
        *_sources(matrix),
        *_conda(matrix, around.project.locks),
        *_apt(chosen, around),
        *_bases(chosen, around),
    )
    return tuple(_as_here(item, around) for item in dict.fromkeys(found))


def _as_here(item: OtherInput, around: Surroundings) -> OtherInput:
    """Return the input at the site that is asked here, with the content that is expected here."""
    name = item.url.rsplit("/", 1)[-1]
    sha256 = around.settings.substitutes.get(name, item.sha256)
    return replace(item, url=around.sites.address(item.url), sha256=sha256)


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


def _bases(images: tuple[Image, ...], around: Surroundings) -> Iterator[OtherInput]:
    """Yield the base images that come from a registry."""
    for image in images:
        base = around.settings.base_for(image.os_name, image.os.image)
        if isinstance(base, RegistryBase):
            place = ("operating_systems", image.os_name, "image")
            found = BaseImage(base.image, around.sites)
            yield OtherInput(f"base {image.os_name}", base.image, place=place, image=found)


def _apt(images: tuple[Image, ...], around: Surroundings) -> Iterator[OtherInput]:
    """Yield the signed index of each repository that the images install from."""
    for image in images:
        ubuntu = image.matrix.upstreams.get("ubuntu")
        if image.os.distribution == "ubuntu" and ubuntu and ubuntu.url:
            url = f"{ubuntu.url.rstrip('/')}/dists/{image.os.suite}/InRelease"
            name = f"ubuntu {image.os.suite}"
            yield OtherInput(name, url, place=("upstreams", "ubuntu", "url"), repository=True)
        for name in _NVIDIA if image.cuda else ():
            yield from _repository(image, name, around)


def _repository(image: Image, name: str, around: Surroundings) -> Iterator[OtherInput]:
    upstream = image.matrix.upstreams.get(name)
    if upstream and upstream.url and upstream.keyring:
        url = f"{upstream.url.rstrip('/')}/{image.os.nvidia}/x86_64/InRelease"
        mirror = around.settings.mirrors.get(name)
        own = around.project.files / "keyrings" / upstream.keyring.file
        keyring = Path(mirror.keyring) if mirror and mirror.keyring else own
        place = ("upstreams", name, "keyring")
        yield OtherInput(
            f"{name} {image.os.nvidia}", url, place=place, keyring=keyring, repository=True
        )
