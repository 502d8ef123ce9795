"""Collect the inputs of a build from outside the checkout, as build contexts and digests."""

import filecmp
import os
import platform
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.files import ensure_folder, file_sha256, link_or_copy, sha256, write_text
from imgbuild.core.project import Project
from imgbuild.core.settings import PrefixInterpreter, Settings
from imgbuild.core.sources import Source
from imgbuild.core.user_folders import cache_dir
from imgbuild.inputs.base import BOOTSTRAPPED, REGISTRY, Base
from imgbuild.inputs.bootstrap import KEYRINGS, find_bootstrapped
from imgbuild.inputs.download import store_content
from imgbuild.inputs.local_prefix import digest_prefix
from imgbuild.inputs.oci_layout import read_layout
from imgbuild.locks.conda import conda_sources
from imgbuild.matrix.evidence import MACHINES
from imgbuild.matrix.image_sources import file_name, image_sources
from imgbuild.matrix.images import Image, for_other_architecture
from imgbuild.matrix.model import Matrix
from imgbuild.net.sites import Sites

#: The named build contexts of downloads and conda packages, which the Dockerfiles mount.
FILES, CONDA = "downloads", "conda-packages"
#: The stage with the building machine's own base, which installs and compiles for arm64.
BUILD_BASE = "build-base"
#: The stages that builds replace with named build contexts.
SUPPLIED = frozenset({"base", BUILD_BASE, "uv", FILES, CONDA})


@dataclass(frozen=True)
class InterpreterInput:
    """The CPython of an image.

    ``prefix`` is a folder on this machine that replaces the stage that compiles CPython. It is None
    if CPython is compiled from source.
    """

    prefix: Path | None
    digest: str
    origin: str


@dataclass(frozen=True)
class ImageDownloads:
    """An image's downloads by named context, and the ARGs for sha256 that the settings replace."""

    contexts: Mapping[str, tuple[Source, ...]]
    arguments: Mapping[str, str]

    @property
    def all(self) -> tuple[Source, ...]:
        return tuple(chain.from_iterable(self.contexts.values()))


@dataclass(frozen=True)
class BuildInputs:
    """All inputs of a build that are not in the checkout.

    ``uv`` is this machine's uv, if the machine runs Linux.
    """

    bases: Mapping[str, Base]
    #: CPython by version and machine, for example ``("3.8.18", "aarch64")``.
    interpreters: Mapping[tuple[str, str], InterpreterInput]
    uv: Path | None
    uv_version: str
    secrets: Mapping[str, Path] = field(default_factory=dict)
    downloads: Mapping[str, ImageDownloads] = field(default_factory=dict)
    keyrings: Path | None = None
    standin: str | None = None
    #: For each distribution with a snapshot, a folder named after the snapshot's time. The folder
    #: replaces the stage `offline`.
    snapshots: Mapping[str, Path] = field(default_factory=dict)
    #: The bases that install and compile for arm64, by the building machine's platform and system.
    build_bases: Mapping[tuple[str, str], Base] = field(default_factory=dict)

    def uv_for(self, builder: str) -> Path | None:
        """Return this machine's uv if a builder's platform runs it.

        If it does not, a stage of the Dockerfile downloads uv by its sha256.
        """
        machines = {f"linux/{name}": machine for name, machine in MACHINES.items()}
        return self.uv if platform.machine() == machines.get(builder) else None


def prepare_inputs(images: Iterable[Image], settings: Settings, project: Project) -> BuildInputs:
    """Return the inputs that ``images`` need. A base image that was never made has no digest.

    InputError: the settings name something that cannot be used.
    MachineError: a tool is missing, or the disk is full.
    """
    images, cache = tuple(images), cache_dir()
    matrix = images[0].matrix
    check_settings(settings, matrix)
    systems = {image.base_name: image for image in images}
    pythons = {(image.version_of("python"), image.machine): image for image in images}
    bases = {name: resolve_base(image, settings) for name, image in systems.items()}
    build_bases = {}
    for image in images:
        if image.uses_build_machine:
            for own in filter(None, (image, for_other_architecture(image))):
                build_bases[own.platform, own.os_name] = resolve_base(own, settings)
    interpreters = {}
    for key, image in pythons.items():
        interpreters[key] = _resolve_interpreter(image, settings, project)
    uv = None
    if platform.system() == "Linux" and platform.machine() in MACHINES.values():
        uv = prepare_uv(cache)
    secrets = _list_secrets(settings, cache)
    downloads = {}
    for image in images:
        downloads[image.name] = list_downloads(image, project.locks, settings)
    keyrings = _store_keyrings(matrix, settings, project.keyrings, cache)
    snapshots = {}
    for name, mirror in settings.mirrors.items():
        if mirror.snapshot:
            snapshots[name] = _store_date(mirror.snapshot, cache)
    return BuildInputs(
        bases=bases,
        build_bases=build_bases,
        interpreters=interpreters,
        uv=uv,
        uv_version=version("uv"),
        secrets=secrets,
        downloads=downloads,
        keyrings=keyrings,
        standin=settings.standin.note if settings.standin else None,
        snapshots=snapshots,
    )


def check_settings(settings: Settings, matrix: Matrix) -> None:
    """Raise InputError if the settings name unusable files, or things that the matrix lacks."""
    check_names(settings, matrix)
    _list_secret_files(settings)
    Sites(matrix.upstream_urls, settings).check_logins()
    _list_mirror_keyrings(matrix, settings)
    for base in settings.base.values():
        if base.path:
            read_layout(Path(base.path), verify_layer=False)


def check_names(settings: Settings, matrix: Matrix) -> None:
    """Raise InputError for settings without effect, because the matrix lacks what they name."""
    urls = [source.url for source in matrix.sources.values()]
    for python in matrix.python.values():
        if python.origin == "conda":
            urls += python.packages
    file_names = [file_name(url) for url in urls]
    dated = [name for name, mirror in settings.mirrors.items() if mirror.snapshot]
    sections = (
        ("base", settings.base, matrix.operating_systems),
        ("cpython", settings.cpython, matrix.python),
        ("mirrors", settings.mirrors, matrix.upstreams),
        ("mirrors with a snapshot", dated, ["debian"]),
        ("substitutes", settings.substitutes, file_names),
    )
    for section, named, known in sections:
        unknown = sorted({*named} - {*known})
        if unknown:
            option = " or --mirror" if section == "mirrors" else ""
            lacking, present = ", ".join(unknown), ", ".join(known)
            raise InputError(
                f"The settings{option}: {section}: the matrix has no {lacking}. "
                f"Use one of: {present}."
            )


def resolve_base(image: Image, settings: Settings) -> Base:
    """Return the base of an image; its digest is None if the base must still be made."""
    setting = settings.base_for(image.os_name, image.os.image)
    if setting.image:
        _, digest = setting.image.rsplit("@", 1)
        return Base(setting.image, digest, REGISTRY)
    if setting.path:
        if image.architecture != "amd64":
            raise InputError(
                f"The settings: base.{image.os_name} is an OCI layout, which is for amd64. For "
                f"{image.architecture}, use a base image from a registry or made on this machine."
            )
        return read_layout(Path(setting.path), verify_layer=False)
    bootstrapped = find_bootstrapped(image, settings)
    return bootstrapped or Base("", None, BOOTSTRAPPED)


def _resolve_interpreter(image: Image, settings: Settings, project: Project) -> InterpreterInput:
    python = image.version_of("python")
    choice = settings.interpreter_for(python, image.machine)
    if not isinstance(choice, PrefixInterpreter):
        return InterpreterInput(None, "source", "source")
    prefix = Path(choice.path)
    digest = digest_prefix(prefix, python, project.prefix_dockerfile, cache_dir())
    return InterpreterInput(prefix, digest, "local prefix")


def list_downloads(image: Image, locks: Path, settings: Settings) -> ImageDownloads:
    """Return the downloads that the image's Dockerfile mounts.

    CPython's source is not one of them if the settings name a prefix.

    InputError: the lock has no sha256 for a conda package.
    """
    python, substitutes = image.version_of("python"), settings.substitutes
    sources = image_sources(image)
    if isinstance(settings.interpreter_for(python, image.machine), PrefixInterpreter):
        sources.pop("cpython", None)
    files = {
        FILES: [*sources.values()],
        CONDA: [*conda_sources(python, image.python, locks)],
    }
    contexts: dict[str, tuple[Source, ...]] = {}
    for name, listed in files.items():
        own = []
        for source in listed:
            digest = substitutes.get(source.name, source.sha256)
            own.append(replace(source, sha256=digest))
        if own:
            contexts[name] = tuple(own)
    arguments = {}
    for use, source in sources.items():
        if source.name in substitutes:
            arguments[f"SHA256_{use.upper()}"] = substitutes[source.name]
    return ImageDownloads(contexts, arguments)


def prepare_uv(cache: Path) -> Path:
    """Return a folder with only the program ``uv`` of the installed Python package.

    BuildKit sends a whole context to the builder, so the folder in which uv is installed cannot be
    the context.
    """
    import uv  # noqa: PLC0415 (imported only for a build)

    release = version("uv")
    try:
        source = Path(uv.find_uv_bin())
    except FileNotFoundError as error:
        raise MachineError(
            "The installed Python package uv lacks its program, which installs the packages of "
            f"every image. Run `pip install --force-reinstall uv=={release}`."
        ) from error
    status = source.stat()
    final = cache / "uv" / f"{release}-{status.st_size:x}-{status.st_mtime_ns:x}"

    def store(folder: Path) -> None:
        link_or_copy(source, folder / "uv")

    def is_whole(folder: Path) -> bool:
        names = [path.name for path in folder.glob("*")]
        if names != ["uv"]:
            return False
        stored = folder / "uv"
        same = stored.samefile(source) or filecmp.cmp(stored, source, shallow=False)
        return same and os.access(stored, os.X_OK)

    return ensure_folder(final, store, is_whole)


def _list_secrets(settings: Settings, cache: Path) -> dict[str, Path]:
    """Return the files of the build's secrets by id: ``ca``, ``netrc``, ``upstreams``."""
    secrets = _list_secret_files(settings)
    if settings.mirrors:
        # images/files/apt/install reads lines of the form NAME URL.
        text = ""
        for name, mirror in sorted(settings.mirrors.items()):
            for archive, url in mirror.addresses(name).items():
                text += f"{archive} {url}\n"
        digest = sha256(text.encode())
        path = cache / "contexts" / f"upstreams-{digest[:16]}.txt"
        write_text(path, text)
        secrets["upstreams"] = path
    return secrets


def _store_date(date: str, cache: Path) -> Path:
    """Return a folder with the time of a snapshot, so that BuildKit's cache depends on it.

    The URL of the snapshot is a secret, and BuildKit's cache does not depend on secrets.
    """
    final = cache / "contexts" / "snapshots" / date
    digest = sha256(date.encode())

    def write(folder: Path) -> None:
        write_text(folder / "snapshot", date)

    return store_content(final, {"snapshot": digest}, write)


def _list_secret_files(settings: Settings) -> dict[str, Path]:
    files = {}
    if settings.ca_bundle is not None:
        ca = Path(settings.ca_bundle)
        if not _has_certificates(ca):
            raise InputError(
                f"The settings: ca_bundle {ca} is not a file of PEM certificates that you can "
                "read. Correct it, or remove the line and run `imgbuild doctor --write`."
            )
        files["ca"] = ca
    if settings.netrc is not None:
        files["netrc"] = Path(settings.netrc)
    return files


def _has_certificates(path: Path) -> bool:
    with suppress(OSError):  # for example, another user's folder
        if path.is_file():
            content = path.read_bytes()
            return b"-----BEGIN CERTIFICATE-----" in content
    return False


def _list_mirror_keyrings(matrix: Matrix, settings: Settings) -> dict[str, Path]:
    """Return the keyrings of mirrors by the file name that the Dockerfiles use.

    InputError: a keyring has no effect, cannot be read, or is not binary.
    """
    keyrings = {}
    for name, mirror in settings.mirrors.items():
        upstream = matrix.upstreams.get(name)
        if not mirror.keyring or not upstream:
            continue
        where = f"The settings: mirrors.{name}"
        path = Path(mirror.keyring)
        if upstream.keyring is None and name not in KEYRINGS:
            raise InputError(
                f"{where}: the keyring has no effect, because files of this site are verified by "
                "sha256. Remove it."
            )
        try:
            with path.open("rb") as file:
                head = file.read(1)
        except OSError as error:
            raise InputError(f"{where}: keyring {path}: {error.strerror}.") from error
        # The highest bit of a binary OpenPGP packet is set. apt of 2016 reads only binary keyrings.
        if not head or not head[0] & 0x80:
            raise InputError(
                f"{where}: keyring {path} is not binary. Convert an armored key with "
                "`gpg --dearmor`."
            )
        # Builds use the distribution's keys in the base image. An offline build gets the keyring of
        # a mirror from the settings.
        if upstream.keyring:
            keyrings[upstream.keyring.file] = path
    return keyrings


def repository_keyrings(matrix: Matrix, settings: Settings, own: Path) -> dict[str, Path]:
    """Return the keyrings in ``own`` by file name, with those of mirrors in their place."""
    keyrings = {path.name: path for path in own.glob("*.gpg")}
    return keyrings | _list_mirror_keyrings(matrix, settings)


def _store_keyrings(matrix: Matrix, settings: Settings, own: Path, cache: Path) -> Path | None:
    """Return a folder with the keyrings of `repository_keyrings`; None if none is replaced."""
    if not _list_mirror_keyrings(matrix, settings):
        return None
    files = repository_keyrings(matrix, settings, own)
    digests = {name: file_sha256(path) for name, path in sorted(files.items())}

    def make(folder: Path) -> None:
        for name, path in files.items():
            shutil.copyfile(path, folder / name)

    # The folder's name is part of the input digest.
    content = b""
    for name, digest in digests.items():
        content += f"{name}\0".encode()
        content += bytes.fromhex(digest)
    final = cache / "contexts" / f"keyrings-{sha256(content)[:16]}"
    return store_content(final, digests, make)
