"""The files that an image's build needs from the network, beside packages. Fetches nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from imgbuild.dockerfile.conda import conda_downloads
from imgbuild.dockerfile.variables import NamedSource, named_sources
from imgbuild.inputs.download import Download, content_digest, substituted
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import CondaPython
from imgbuild.settings import PrefixInterpreter, Settings

#: The named build contexts that the Dockerfiles mount.
FILES, CONDA = "downloads", "conda-packages"


@dataclass(frozen=True)
class ImageDownloads:
    """An image's downloads by named context, and the ARGs of those that settings substitute."""

    contexts: Mapping[str, tuple[Download, ...]]
    arguments: Mapping[str, str]

    @property
    def all(self) -> tuple[Download, ...]:
        """Every file."""
        return tuple(file for files in self.contexts.values() for file in files)

    @property
    def digest(self) -> str:
        """The sha256, in hexadecimal, over names and contents."""
        return content_digest(self.all)


def image_downloads(image: Image, locks: Path, settings: Settings) -> ImageDownloads:
    """Return what the image's Dockerfile mounts; a local interpreter needs no source.

    Raises:
        InputError: a conda package has no recorded sha256.

    """
    named = list(_needed(image, settings))
    files = [Download(name.file_name, name.source.url, name.sha256) for name in named]
    contexts = {FILES: tuple(substituted(file, settings.substitutes) for file in files)}
    if isinstance(image.python, CondaPython):
        conda = conda_downloads(image.version_of("python"), image.python, locks)
        files = [Download(url.rsplit("/", 1)[1], url, sha256) for url, sha256 in conda]
        contexts[CONDA] = tuple(substituted(file, settings.substitutes) for file in files)
    arguments = {
        name.argument: settings.substitutes[name.file_name]
        for name in named
        if name.file_name in settings.substitutes
    }
    return ImageDownloads({name: files for name, files in contexts.items() if files}, arguments)


def _needed(image: Image, settings: Settings) -> Iterator[NamedSource]:
    local = isinstance(settings.interpreter_for(image.version_of("python")), PrefixInterpreter)
    for purpose, source in named_sources(image).items():
        if purpose != "cpython" or not local:
            yield source
