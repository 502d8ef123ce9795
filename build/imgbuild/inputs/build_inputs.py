"""Everything a build takes from outside the checkout, as named build contexts and digests."""

import filecmp
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

from imgbuild.dockerfile.conda import conda_downloads
from imgbuild.dockerfile.variables import epoch_seconds, named_sources
from imgbuild.errors import InputError, MachineError
from imgbuild.files import link_or_copy, stored_folder
from imgbuild.inputs.base import BaseRecipe, bootstrap_base, find_base, whole_base
from imgbuild.inputs.download import Download, content_digest, substituted
from imgbuild.inputs.local_prefix import prefix_digest
from imgbuild.inputs.oci_layout import BaseLayout, open_layout
from imgbuild.inputs.settings_files import (
    build_secrets,
    keyrings_context,
    other_keyrings,
    secret_files,
)
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import CondaPython, Matrix
from imgbuild.project import Project
from imgbuild.settings import LayoutBase, PrefixInterpreter, RegistryBase, Settings, Sites

#: The named build contexts that the Dockerfiles mount.
FILES, CONDA = "downloads", "conda-packages"


@dataclass(frozen=True)
class BaseInput:
    """The base image: a reference that the engine has or can pull.

    ``digest`` is ``None`` until it has been made.
    """

    reference: str
    digest: str | None
    origin: str
    layout: BaseLayout | None = None
    require_whole: Callable[[], None] = lambda: None
    """Makes a damaged layout again; it reads all of it, so it is called before a load only."""


@dataclass(frozen=True)
class InterpreterInput:
    """CPython: a prefix of this machine that replaces the stage that compiles it, or ``None``."""

    prefix: Path | None
    digest: str
    origin: str


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


@dataclass(frozen=True)
class BuildInputs:
    """Everything a build takes that is not in the checkout."""

    bases: Mapping[str, BaseInput]
    interpreters: Mapping[str, InterpreterInput]
    uv: Path
    uv_version: str
    secrets: Mapping[str, Path] = field(default_factory=dict)
    downloads: Mapping[str, ImageDownloads] = field(default_factory=dict)
    keyrings: Path | None = None
    standin: str | None = None


@dataclass(frozen=True)
class Preparation:
    """How inputs are made: where they are kept, and who gets messages meanwhile.

    With ``make`` false nothing is made: a base image that is missing then has no digest.
    """

    cache: Path
    log: Path
    project: Project
    say: Callable[[str], None]
    make: bool = True
    refresh: bool = False


def prepare_inputs(
    images: Iterable[Image], settings: Settings, preparation: Preparation
) -> BuildInputs:
    """Return the inputs that ``images`` need, made where they are missing.

    Raises:
        InputError: the settings name a prefix or a CA bundle that cannot be used.
        MachineError: a tool is missing, the archive cannot be reached, the disk is full.

    """
    images = tuple(images)
    check_settings(settings, images[0].matrix)
    systems = {image.os_name: image for image in images}
    pythons = {image.version_of("python"): image for image in images}
    return BuildInputs(
        {name: _base(image, settings, preparation) for name, image in systems.items()},
        {v: _interpreter(image, settings, preparation) for v, image in pythons.items()},
        uv_context(preparation.cache),
        version("uv"),
        build_secrets(settings, preparation.cache),
        {i.name: image_downloads(i, preparation.project.locks, settings) for i in images},
        keyrings_context(
            images[0].matrix, settings, preparation.project.files / "keyrings", preparation.cache
        ),
        settings.standin.note if settings.standin else None,
    )


def _base(image: Image, settings: Settings, preparation: Preparation) -> BaseInput:
    choice = settings.base_for(image.os_name, image.os.image)
    if isinstance(choice, RegistryBase):
        return BaseInput(choice.image, choice.image.rsplit("@", 1)[1], "registry")
    if isinstance(choice, LayoutBase):
        local = open_layout(Path(choice.path))
        return BaseInput(local.reference, local.image_id, "OCI layout", local)
    recipe, cache, say = base_recipe(image), preparation.cache, preparation.say
    make = partial(bootstrap_base, recipe, cache, log=preparation.log, say=say)
    layout = None if preparation.refresh else find_base(recipe, cache)
    if layout is None and not preparation.make:
        return BaseInput("", None, "bootstrapped")
    if layout is None:
        say(f"making the base image {image.os_name} (about half a minute)")
        layout = make(refresh=preparation.refresh)
    whole = partial(whole_base, layout, make, say)
    return BaseInput(layout.reference, layout.image_id, "bootstrapped", layout, whole)


def base_recipe(image: Image) -> BaseRecipe:
    """Return what the image's base is made from, where it is made here."""
    return BaseRecipe(image.os_name, image.os.distribution, image.os.suite, epoch_seconds(image))


def _interpreter(image: Image, settings: Settings, preparation: Preparation) -> InterpreterInput:
    python = image.version_of("python")
    choice = settings.interpreter_for(python)
    if not isinstance(choice, PrefixInterpreter):
        return InterpreterInput(None, "source", "source")
    prefix, dockerfile = Path(choice.path), preparation.project.prefix_dockerfile
    digest = prefix_digest(prefix, python, dockerfile, preparation.cache)
    return InterpreterInput(prefix, digest, "local prefix")


def check_settings(settings: Settings, matrix: Matrix) -> None:
    """Refuse settings that mean nothing here, or name files that cannot be used.

    Raises:
        InputError: what, and what to do.

    """
    # Settings for what the matrix does not have would silently do nothing.
    pairs = (
        ("base", settings.base, matrix.operating_systems),
        ("cpython", settings.cpython, matrix.python),
        ("mirrors", settings.mirrors, matrix.upstreams),
    )
    for section, named, known in pairs:
        unknown = sorted({*named} - {*known})
        if unknown:
            option = " or --mirror" if section == "mirrors" else ""
            raise InputError(
                f"The settings{option}: {section}: the matrix has no {', '.join(unknown)}; "
                f"there are: {', '.join(known)}."
            )
    secret_files(settings)
    Sites(matrix.upstream_urls, settings).login("https://localhost/")
    other_keyrings(matrix, settings)
    for base in settings.base.values():
        if isinstance(base, LayoutBase):
            open_layout(Path(base.path))


def image_downloads(image: Image, locks: Path, settings: Settings) -> ImageDownloads:
    """Return what the image's Dockerfile mounts; a local interpreter needs no source.

    Raises:
        InputError: a conda package has no recorded sha256.

    """
    python, others = image.version_of("python"), settings.substitutes
    named = named_sources(image)
    if isinstance(settings.interpreter_for(python), PrefixInterpreter):
        named = {purpose: source for purpose, source in named.items() if purpose != "cpython"}
    contexts = {FILES: [Download(n.file_name, n.url, n.sha256) for n in named.values()]}
    if isinstance(image.python, CondaPython):
        conda = conda_downloads(python, image.python, locks)
        contexts[CONDA] = [Download(url.rsplit("/", 1)[1], url, sha256) for url, sha256 in conda]
    return ImageDownloads(
        {
            name: tuple(substituted(file, others) for file in files)
            for name, files in contexts.items()
            if files
        },
        {n.argument: others[n.file_name] for n in named.values() if n.file_name in others},
    )


def uv_context(cache: Path) -> Path:
    """Return a folder that holds the ``uv`` binary of the installed package, and nothing else.

    BuildKit sends a whole context to the builder, so it must not be the folder uv lives in.

    Raises:
        MachineError: the package has no binary, or the cache cannot be written.

    """
    import uv  # noqa: PLC0415 (only when a build is prepared)

    try:
        source = Path(uv.find_uv_bin())
    except FileNotFoundError as error:
        raise MachineError(
            "The Python package uv is installed without its program, which installs the packages "
            f"of every image. Run `pip install --force-reinstall uv=={version('uv')}`."
        ) from error
    status = source.stat()
    final = cache / "uv" / f"{version('uv')}-{status.st_size:x}-{status.st_mtime_ns:x}"

    def make(folder: Path) -> None:
        link_or_copy(source, folder / "uv")

    def is_whole(folder: Path) -> bool:
        stored = folder / "uv"
        only = folder.is_dir() and [path.name for path in folder.iterdir()] == ["uv"]
        same = only and (stored.samefile(source) or filecmp.cmp(stored, source, shallow=False))
        return same and os.access(stored, os.X_OK)

    return stored_folder(final, make, is_whole)
