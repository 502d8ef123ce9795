"""Everything a build takes from outside the checkout, as named build contexts and digests."""

import filecmp
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from imgbuild.dockerfile.conda import conda_sources
from imgbuild.dockerfile.sources import file_name, image_sources
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.errors import InputError, MachineError
from imgbuild.files import file_sha256, link_or_copy, sha256, stored_folder, write_text
from imgbuild.inputs.base import KEYRINGS, BaseRecipe, bootstrap_base, find_base
from imgbuild.inputs.download import content_folder
from imgbuild.inputs.local_prefix import prefix_digest
from imgbuild.inputs.oci_layout import BaseLayout, read_layout
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Matrix
from imgbuild.project import Project
from imgbuild.settings import LayoutBase, PrefixInterpreter, RegistryBase, Settings
from imgbuild.sites import Sites
from imgbuild.sources import Source
from imgbuild.user_folders import cache_dir, state_dir

#: The named build contexts that the Dockerfiles mount.
FILES, CONDA = "downloads", "conda-packages"
#: Stages in whose place every build puts something.
SUPPLIED = frozenset({"base", "uv", FILES, CONDA})


@dataclass(frozen=True)
class BaseInput:
    """The base image: a reference that the engine has or can pull.

    ``digest`` is ``None`` until it has been made. ``require_whole`` makes a damaged layout again,
    or refuses one that was not made here; it reads all of it, so it is called before a load only.
    """

    reference: str
    digest: str | None
    origin: str
    layout: BaseLayout | None = None
    require_whole: Callable[[], object] = lambda: None

    def context(self, *, in_engine: bool = True) -> str:
        """Return it as a named build context: of the engine's images, or for who lacks those."""
        if in_engine or not self.layout:
            return f"docker-image://{self.reference}"
        return f"oci-layout://{self.layout.path}"


@dataclass(frozen=True)
class InterpreterInput:
    """CPython: a prefix of this machine that replaces the stage that compiles it, or ``None``."""

    prefix: Path | None
    digest: str
    origin: str


@dataclass(frozen=True)
class ImageDownloads:
    """An image's downloads by named context, and the ARGs of those that settings substitute."""

    contexts: Mapping[str, tuple[Source, ...]]
    arguments: Mapping[str, str]

    @property
    def all(self) -> tuple[Source, ...]:
        return tuple(file for files in self.contexts.values() for file in files)


@dataclass(frozen=True)
class BuildInputs:
    """Everything a build takes that is not in the checkout.

    Without ``uv``, whose program here is for another platform than the images', the Dockerfile's
    own stage takes the one for Linux, by its sha256.
    """

    bases: Mapping[str, BaseInput]
    interpreters: Mapping[str, InterpreterInput]
    uv: Path | None
    uv_version: str
    secrets: Mapping[str, Path] = field(default_factory=dict)
    downloads: Mapping[str, ImageDownloads] = field(default_factory=dict)
    keyrings: Path | None = None
    standin: str | None = None
    #: By distribution a folder named after the time of its archive: the stage `offline` of builds.
    snapshots: Mapping[str, Path] = field(default_factory=dict)


def prepare_inputs(  # noqa: PLR0913, PLR0917 - what inputs are made of
    images: Iterable[Image],
    settings: Settings,
    project: Project,
    log: Callable[[str], None],
    make: bool = True,
    refresh: bool = False,
) -> BuildInputs:
    """Return the inputs that ``images`` need; ``log`` gets messages while they are made.

    Without ``make`` a base image that is missing is not made, and has no digest.

    InputError: the settings name something that cannot be used.
    MachineError: a tool is missing, the archive cannot be reached, the disk is full.
    """
    images, cache = tuple(images), cache_dir()
    matrix = images[0].matrix
    check_settings(settings, matrix)
    dates = {name: one.snapshot for name, one in settings.mirrors.items() if one.snapshot}
    linux = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    systems = {image.os_name: image for image in images}
    pythons = {image.version_of("python"): image for image in images}
    return BuildInputs(
        {name: base_input(image, settings, log, make, refresh) for name, image in systems.items()},
        {v: _interpreter(image, settings, project) for v, image in pythons.items()},
        uv_context(cache) if linux else None,
        version("uv"),
        _build_secrets(settings, cache),
        {image.name: image_downloads(image, project.locks, settings) for image in images},
        _keyrings_context(matrix, settings, project.keyrings, cache),
        settings.standin.note if settings.standin else None,
        {name: _dated_context(date, cache) for name, date in dates.items()},
    )


def check_settings(settings: Settings, matrix: Matrix) -> None:
    """Raise InputError for settings that mean nothing here, or name files that cannot be used."""
    check_names(settings, matrix)
    _secret_files(settings)
    Sites(matrix.upstream_urls, settings).check_logins()
    _mirror_keyrings(matrix, settings)
    for base in settings.base.values():
        if isinstance(base, LayoutBase):
            read_layout(Path(base.path), verify_layer=False)


def check_names(settings: Settings, matrix: Matrix) -> None:
    """Raise InputError for settings of what the matrix does not have: they would do nothing."""
    pythons = (one for one in matrix.python.values() if one.origin == "conda")
    sources = (source.url for source in matrix.sources.values())
    urls = (*sources, *(url for python in pythons for url in python.packages))
    dated = [name for name, mirror in settings.mirrors.items() if mirror.snapshot]
    pairs = (
        ("base", settings.base, matrix.operating_systems),
        ("cpython", settings.cpython, matrix.python),
        ("mirrors", settings.mirrors, matrix.upstreams),
        ("mirrors with a snapshot", dated, ["debian"]),
        ("substitutes", settings.substitutes, [*map(file_name, urls)]),
    )
    for section, named, known in pairs:
        unknown = sorted({*named} - {*known})
        if unknown:
            option = " or --mirror" if section == "mirrors" else ""
            raise InputError(
                f"The settings{option}: {section}: the matrix has no {', '.join(unknown)}; "
                f"there are: {', '.join(known)}."
            )


def base_recipe(image: Image, settings: Settings | None = None) -> BaseRecipe:
    """Return what the image's base is made from, where it is made here."""
    name = image.os.distribution
    mirror = settings.mirrors.get(name) if settings else None
    dated = (mirror.snapshot or "", mirror.url.rstrip("/")) if mirror else ()
    return BaseRecipe(image.os_name, name, image.os.suite, epoch_seconds(image), *dated)


def base_input(
    image: Image,
    settings: Settings,
    log: Callable[[str], None],
    make: bool = True,
    refresh: bool = False,
) -> BaseInput:
    """Return the base image of an image; the other parameters are those of `prepare_inputs`."""
    choice = settings.base_for(image.os_name, image.os.image)
    if isinstance(choice, RegistryBase):
        return BaseInput(choice.image, choice.image.rsplit("@", 1)[1], "registry")
    if isinstance(choice, LayoutBase):
        local = read_layout(Path(choice.path), verify_layer=False)
        whole = partial(read_layout, local.path)
        return BaseInput(local.reference, local.image_id, "OCI layout", local, whole)
    recipe, cache = base_recipe(image, settings), cache_dir()
    found = None if refresh else find_base(recipe, cache)
    if found is None and not make:
        return BaseInput("", None, "bootstrapped")
    log_path = state_dir() / "logs" / f"{time.strftime('%Y%m%dT%H%M%S')}-inputs.log"
    bootstrap = partial(bootstrap_base, recipe, cache, log_path=log_path, log=log)
    layout = found or bootstrap(refresh=refresh)

    def require_whole() -> None:
        if bootstrap().image_id != layout.image_id:
            raise MachineError(
                f"The base image in {layout.path} was damaged and was made again; the "
                "archive has changed meanwhile, so the image has changed. Run this again."
            )

    return BaseInput(layout.reference, layout.image_id, "bootstrapped", layout, require_whole)


def _interpreter(image: Image, settings: Settings, project: Project) -> InterpreterInput:
    python = image.version_of("python")
    choice = settings.interpreter_for(python)
    if not isinstance(choice, PrefixInterpreter):
        return InterpreterInput(None, "source", "source")
    prefix = Path(choice.path)
    digest = prefix_digest(prefix, python, project.prefix_dockerfile, cache_dir())
    return InterpreterInput(prefix, digest, "local prefix")


def image_downloads(image: Image, locks: Path, settings: Settings) -> ImageDownloads:
    """Return what the image's Dockerfile mounts; a local interpreter needs no source."""
    python, others = image.version_of("python"), settings.substitutes
    sources = image_sources(image)
    if isinstance(settings.interpreter_for(python), PrefixInterpreter):
        sources.pop("cpython", None)
    contexts = {FILES: [*sources.values()], CONDA: conda_sources(python, image.python, locks)}
    substituted = {
        name: tuple(replace(file, sha256=others.get(file.name, file.sha256)) for file in files)
        for name, files in contexts.items()
        if files
    }
    arguments = {
        f"SHA256_{use.upper()}": others[source.name]
        for use, source in sources.items()
        if source.name in others
    }
    return ImageDownloads(substituted, arguments)


def uv_context(cache: Path) -> Path:
    """Return a folder that holds the installed package's program ``uv``, and nothing else.

    BuildKit sends a whole context to the builder, so it must not be the folder uv lives in.
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

    def is_whole(folder: Path) -> bool:
        stored = folder / "uv"
        alone = [path.name for path in folder.glob("*")] == ["uv"]
        same = alone and (stored.samefile(source) or filecmp.cmp(stored, source, shallow=False))
        return same and os.access(stored, os.X_OK)

    return stored_folder(final, lambda folder: link_or_copy(source, folder / "uv"), is_whole)


def _build_secrets(settings: Settings, cache: Path) -> dict[str, Path]:
    """Return the files of the build's secrets by id: ``ca``, ``netrc``, ``upstreams``."""
    found = _secret_files(settings)
    if settings.mirrors:
        # Lines NAME URL, which images/files/apt/install reads.
        mirrors = sorted(settings.mirrors.items())
        pairs = (pair for name, one in mirrors for pair in one.addresses(name).items())
        text = "".join(f"{name} {url}\n" for name, url in pairs)
        found["upstreams"] = cache / "contexts" / f"upstreams-{sha256(text.encode())[:16]}.txt"
        write_text(found["upstreams"], text)
    return found


def _dated_context(date: str, cache: Path) -> Path:
    """Return a folder that tells BuildKit the time of a snapshot: its cache knows no secret."""
    final, files = cache / "contexts" / "snapshots" / date, {"snapshot": sha256(date.encode())}
    return content_folder(final, files, lambda folder: write_text(folder / "snapshot", date))


def _secret_files(settings: Settings) -> dict[str, Path]:
    named = {"ca": settings.ca_bundle, "netrc": settings.netrc}
    found = {name: Path(path) for name, path in named.items() if path is not None}
    ca = found.get("ca")
    if ca and not _has_certificates(ca):
        raise InputError(
            f"The settings: ca_bundle {ca} is not a file of PEM certificates that you may read. "
            "Correct it, or remove the line and run `imgbuild doctor --write`."
        )
    return found


def _has_certificates(path: Path) -> bool:
    with suppress(OSError):  # in another user's folder
        return path.is_file() and b"-----BEGIN CERTIFICATE-----" in path.read_bytes()
    return False


def _mirror_keyrings(matrix: Matrix, settings: Settings) -> dict[str, Path]:
    """Return the keyrings of mirrors, by the file name that the Dockerfiles use."""
    found = {}
    for name, mirror in settings.mirrors.items():
        upstream = matrix.upstreams.get(name)
        if not mirror.keyring or not upstream:
            continue
        where, path = f"The settings: mirrors.{name}", Path(mirror.keyring)
        if upstream.keyring is None and name not in KEYRINGS:
            raise InputError(
                f"{where}: a keyring would not be used. Such a site is trusted by sha256."
            )
        try:
            with path.open("rb") as file:
                head = file.read(1)
        except OSError as error:
            raise InputError(f"{where}: keyring {path}: {error.strerror}.") from error
        # A binary OpenPGP packet begins with its highest bit set; apt of 2016 reads no other kind.
        if not head or not head[0] & 0x80:
            raise InputError(
                f"{where}: keyring {path} is no binary keyring. Make one of an armored key with "
                "`gpg --dearmor`."
            )
        if upstream.keyring:  # without, a base image has its own keys; `--offline` needs this one
            found[upstream.keyring.file] = path
    return found


def repository_keyrings(matrix: Matrix, settings: Settings, own: Path) -> dict[str, Path]:
    """Return the keyrings in ``own``, those of mirrors in their places, by file name."""
    return {path.name: path for path in own.glob("*.gpg")} | _mirror_keyrings(matrix, settings)


def _keyrings_context(matrix: Matrix, settings: Settings, own: Path, cache: Path) -> Path | None:
    """Return a folder of the keyrings in ``own``, some replaced; ``None`` if none is replaced."""
    if not _mirror_keyrings(matrix, settings):
        return None
    files = repository_keyrings(matrix, settings, own)
    digests = {name: file_sha256(path) for name, path in sorted(files.items())}

    def make(folder: Path) -> None:
        for name, path in files.items():
            shutil.copyfile(path, folder / name)

    # Its name is part of the input digest.
    parts = [f"{name}\0".encode() + bytes.fromhex(digest) for name, digest in digests.items()]
    final = cache / "contexts" / f"keyrings-{sha256(b''.join(parts))[:16]}"
    return content_folder(final, digests, make)
