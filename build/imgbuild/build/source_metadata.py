"""Read the metadata of packages, and cache it by their sha256.

Wheels include their metadata. For a source distribution, a container generates the metadata.

Metadata from the Python of an image outside the matrix is not trusted: it is cached for that image
only.

The code of a package has no access to the network, secrets or the user's files. It runs as an
unprivileged user.
"""

import json
import tarfile
import threading
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shutil import copyfile
from types import TracebackType
from typing import Self

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import TypeAdapter

from imgbuild.build import metadata_program
from imgbuild.build.context import BuildContext, BuildOptions, open_context
from imgbuild.build.image_build import export_stage, temporary_name
from imgbuild.build.prepare import prepare
from imgbuild.build.targets import INSTALLER, stage_target
from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.files import ContentStore, read_user_file, sha256, work_folder, write_text
from imgbuild.core.project import Project
from imgbuild.core.sources import Source
from imgbuild.core.unpacking import DAMAGED_ZIP, LimitedMember, read_member, stream_members
from imgbuild.core.user_folders import cache_dir
from imgbuild.dockerfile.variables import PREFIX
from imgbuild.engine.build import BuildTarget
from imgbuild.engine.types import AMD64, machine_platform
from imgbuild.inputs.download import fetch_all, prepare_downloads, show_progress
from imgbuild.inputs.upstream_files import lock_files
from imgbuild.locks.lockfile import Lock, parse_lock, read_lock
from imgbuild.locks.requirements import index_environment
from imgbuild.locks.resolver import (
    LARGEST_METADATA,
    PackageMetadata,
    Target,
    explain_refusal,
    index_requirement,
    lock_packages,
    parse_metadata,
    wheel_metadata,
)
from imgbuild.matrix.evidence import MACHINES
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.model import Matrix
from imgbuild.net.sites import Sites

#: Time limit for the code of a package, in seconds.
SECONDS = 300
#: Limits for a source distribution: number of files (TensorFlow has 30,000) and unpacked bytes.
MOST_FILES, MOST_BYTES = 200_000, 4 << 30
#: How many times a package may request more build tools.
ROUNDS = 3
#: Path of Python in the images of the matrix.
_PYTHON = f"{PREFIX}/bin/python3"
#: Errors that libraries raise for damaged or malicious archives and texts.
_BROKEN = (*DAMAGED_ZIP, OSError, tarfile.TarError)
#: Build tools of a package that declares no build backend. Source: PEP 517.
_LEGACY = ("setuptools", "wheel")
_DOCKERFILE = """\
FROM python AS metadata
USER 0
RUN --network=none --mount=target=/run/metadata --mount=from=tools,target=/run/tools \
    ["{python}", "-I", "/run/metadata/program.py", "prepare"]
USER 65534:65534
RUN --network=none --mount=target=/run/metadata \
    ["{python}", "-I", "/run/metadata/program.py", "make"]
USER 0
RUN --network=none --mount=target=/run/metadata \
    ["{python}", "-I", "/run/metadata/program.py", "collect"]
FROM scratch AS metadata-made
COPY --from=metadata {result}/ /
"""


@dataclass(frozen=True)
class BuildSystem:
    """The build system that a package's pyproject.toml declares (PEP 518)."""

    requires: tuple[str, ...] = _LEGACY
    backend: str = "setuptools.build_meta:__legacy__"
    path: tuple[str, ...] = ()


@dataclass
class MetadataReader:
    """Reads the metadata of packages; a context manager that closes the engine's connection.

    ``image_id`` is an image in the engine that has the target's Python. Without it, the reader
    uses the first image of the matrix with this Python.
    """

    project: Project
    matrix: Matrix
    sites: Sites
    log: Callable[[str], None]
    image_id: str = ""
    _opened: ExitStack = field(default_factory=ExitStack)
    _contexts: dict[str, BuildContext] = field(default_factory=dict)
    _alone: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()

    def read(self, name: str, version: str, source: Source, target: Target) -> PackageMetadata:
        """Return the metadata of a release; if it is not cached, generate it in a container.

        CheckFailedError: the package's code fails, or its output is not valid metadata.
        MachineError: the file cannot be downloaded, or this machine has no engine.
        """
        with self._alone:
            python = self.image_id.partition(":")[2] or f"py{target.minor}"
            kept = cache_dir() / "source-metadata" / f"{source.sha256}-{python}.json"
            if known := _read_kept_metadata(kept):
                return known
            title = f"{name} {version}"
            try:
                metadata = self._make(name, version, source, target)
            except ValueError as error:
                raise CheckFailedError(
                    f"The source distribution of {title}, {source.name}, cannot be used: "
                    f"{error}. Choose another version, or one that has a wheel for Python "
                    f"{target.minor}."
                ) from None
            write_text(kept, json.dumps(asdict(metadata)) + "\n")
            return metadata

    def requirements(self, lock: Lock, name: str, target: Target) -> dict[str, tuple[str, ...]]:
        """Return the requirements of each package in the lock called ``name``.

        CheckFailedError: the index has no file for a package, or its metadata cannot be read.
        MachineError: the index cannot be reached.
        """
        names: dict[str, str] = {}
        for package, digests in lock.hashes.items():
            names |= dict.fromkeys(digests, package)
        requirements = {}
        for file in lock_files(lock, name, target, self.sites):
            package = names[file.sha256]
            version = lock.versions[package]
            if file.name.endswith(".whl"):
                metadata = self._read_wheel(file, package, version)
            else:
                metadata = self.read(package, version, file, target)
            requirements[package] = metadata.requires
        return requirements

    def _read_wheel(self, file: Source, package: str, version: str) -> PackageMetadata:
        """Return the metadata of a wheel, from the index's metadata file (PEP 658) if possible."""
        kept = cache_dir() / "wheel-metadata" / f"{file.sha256}.json"
        if known := _read_kept_metadata(kept):
            return known
        try:
            text = self._fetch_index_metadata(file.url) or wheel_metadata(self._fetch_source(file))
            metadata = parse_metadata(text, package, version)
        except (*_BROKEN, ValueError) as error:
            raise CheckFailedError(f"The metadata of {file.name} is not usable: {error}.") from None
        write_text(kept, json.dumps(asdict(metadata)) + "\n")
        return metadata

    def _fetch_index_metadata(self, url: str) -> str:
        """Return the METADATA file that an index serves for a wheel, or an empty text."""
        if not url.startswith(("http://", "https://")):
            return ""
        answer = self.sites.get(f"{url}.metadata", limit=LARGEST_METADATA)
        return answer.body.decode("utf-8") if answer.status == 200 else ""

    def build_tools(self, name: str, version: str, source: Source, target: Target) -> list[Source]:
        """Return the wheels needed to build a release from source; raises the errors of `read`."""
        metadata = self.read(name, version, source, target)
        with work_folder("tools") as folder:
            return self._fetch_tools(metadata.build_requires, target, folder, f"{name} {version}")

    def _make(self, name: str, version: str, source: Source, target: Target) -> PackageMetadata:
        title = f"{name} {version}"
        context = self._context(target, title)
        archive = self._fetch_source(source)
        system = read_build_system(archive)
        self.log(f"making the metadata of {title} in a container: it has no wheel")
        requires, reason = system.requires, ""
        tools_target = target
        if not self.image_id:  # the container is for amd64, whatever the metadata is for
            usual = MACHINES["amd64"]
            platform = target.platform.replace(target.machine, usual, 1)
            tools_target = replace(target, platform=platform)
        more: tuple[str, ...] = ()
        # A backend may require more than its package declares (PEP 517).
        for _ in range(ROUNDS):
            requires += more
            with work_folder("metadata") as folder:
                (tools := folder / "tools").mkdir()
                if files := self._fetch_tools(requires, tools_target, folder, title):
                    with show_progress() as progress:
                        tools = prepare_downloads(files, cache_dir(), self.sites, progress)
                made = self._run(archive, system, tools, target, context, folder / "build")
                more = _read_more_requires(made, requires)
                if text := _read_exported(made, "METADATA"):
                    metadata = parse_metadata(text, name, version)
                    return replace(metadata, build_requires=(*requires, *more))
                reason = _read_exported(made, "error.txt")
            if not more:
                break
        raise ValueError(reason or "its build backend made no metadata")

    def _fetch_source(self, file: Source) -> Path:
        store = ContentStore(cache_dir() / "downloads")
        with show_progress() as progress:
            fetch_all([file], store, self.sites, progress)
        return store.path(file.sha256)

    def _context(self, target: Target, title: str) -> BuildContext:
        """Return the context for running containers.

        MachineError: no container can run; the message names the package that needs one.
        """
        if known := self._contexts.get(target.minor):
            return known
        images = [image for image in all_images(self.matrix) if _has_python(image, target)]
        images.sort(key=lambda image: image.python.origin == "conda")
        if not images and not self.image_id:
            raise MachineError(
                f"{title} has no wheel. Its metadata must be made with Python {target.minor}, "
                "which no image of the matrix has."
            )
        image = (images or all_images(self.matrix))[0]
        try:
            manager = open_context(self.project, (image,), BuildOptions(), self.log)
            context = self._opened.enter_context(manager)
        except MachineError as error:
            raise MachineError(
                f"{title} has no wheel for Python {target.minor}. Its code runs only in "
                f"containers, which need an engine: {error}"
            ) from None
        self._contexts[target.minor] = context
        return context

    def _fetch_tools(
        self, requires: Sequence[str], target: Target, folder: Path, title: str
    ) -> list[Source]:
        """Return the build tools of a package as wheels, with the versions of the build lock.

        CheckFailedError: the tools conflict with the lock, or one of them has no wheel.
        """
        if not requires:
            return []
        path = self.project.locks / f"build-py{target.minor}.txt"
        locked = read_lock(path) if path.exists() else Lock("", {}, {})
        pins = (f"{name}=={version}\n" for name, version in locked.versions.items())
        (folder / "constraints.txt").write_text("".join(pins), encoding="utf-8")
        lines = "".join(f"{requirement}\n" for requirement in requires)
        (folder / "build.in").write_text(lines, encoding="utf-8")

        def refuse(name: str, version: str, _: Source, __: Target) -> PackageMetadata:
            raise CheckFailedError(
                f"{title} is built with {name} {version}, which has no wheel for "
                f"Python {target.minor}. Choose another version of {title}, or one with a wheel."
            )

        options = ("--constraint=constraints.txt", "build.in")
        environment = index_environment(self.sites)
        text, result = lock_packages(options, target, folder, environment, "", refuse)
        if reason := explain_refusal(result, f"the build tools of {title}"):
            own = ", ".join(f"{name} {version}" for name, version in locked.versions.items())
            raise CheckFailedError(
                f"{title} cannot be built with the locked build tools ({own or 'none'}): {reason} "
                "Choose a version of it that has a wheel."
            )
        lock = parse_lock(f"# request: sha256:{sha256(text.encode())}\n{text}", "the build tools")
        lock = replace(lock, hashes={**lock.hashes, **locked.hashes})
        return [*lock_files(lock, f"the build tools of {title}", target, self.sites)]

    def _run(  # noqa: PLR0913, PLR0917 - the package and its tools
        self,
        archive: Path,
        system: BuildSystem,
        tools: Path,
        target: Target,
        context: BuildContext,
        folder: Path,
    ) -> Path:
        """Run the metadata program in a container; return the folder with its output."""
        (sent := folder / "context").mkdir(parents=True)
        copyfile(archive, sent / "source")
        copyfile(metadata_program.__file__, sent / "program.py")
        settings = {"backend": system.backend, "path": system.path, "seconds": SECONDS}
        (sent / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        needs: tuple[BuildTarget, ...] = ()
        python, place = "python3", ""
        if not self.image_id:
            image = context.images[0]
            downloads, failed = prepare([image], context)
            for error in failed.values():
                raise error
            stage = replace(
                stage_target(image, INSTALLER, context.inputs, downloads[image.name], self.project),
                name=f"python-{target.minor}",
                output="",
            )
            needs, place, python = (stage, *stage.needs), f"target:{stage.name}", _PYTHON
        dockerfile = folder / "Dockerfile"
        text = _DOCKERFILE.format(python=python, result=metadata_program.RESULT)
        dockerfile.write_text(text, encoding="utf-8")
        with ExitStack() as stack:
            if self.image_id:
                name = stack.enter_context(temporary_name(self.image_id, context))
                place = f"docker-image://{name}"
            contexts = {"python": place, "tools": str(tools)}
            bake = BuildTarget(
                "metadata",
                sent,
                dockerfile,
                contexts=contexts,
                target="metadata-made",
                needs=needs,
                platform=machine_platform(target.machine) if self.image_id else AMD64,
            )
            export_stage(bake, folder / "out", context)
        return folder / "out"


def _has_python(image: Image, target: Target) -> bool:
    return image.python_minor == target.minor


def _read_kept_metadata(path: Path) -> PackageMetadata | None:
    try:
        return TypeAdapter(PackageMetadata).validate_json(path.read_bytes())
    except (OSError, ValueError):  # it can be made again
        return None


def _read_exported(folder: Path, name: str) -> str:
    """Return the text of an exported file; empty if the file is missing.

    ValueError: it is not a regular file, not text, or too large.
    """
    path = folder / name
    if path.is_symlink() or not path.exists():
        return ""
    try:
        return read_user_file(path, name, largest=LARGEST_METADATA)
    except InputError as error:
        raise ValueError(str(error).removesuffix(".")) from None


def _read_more_requires(folder: Path, known: Iterable[str]) -> tuple[str, ...]:
    """Return the additional packages that a backend requires.

    A package in ``known`` is left out, because its first requirement decides the version.

    ValueError: the backend's answer is not a list of requirements.
    """
    text = _read_exported(folder, "requires.json")
    requirements = TypeAdapter(list[str]).validate_json(text or "[]")
    names = {canonicalize_name(Requirement(requirement).name) for requirement in known}
    more = [index_requirement(requirement) for requirement in requirements]
    return tuple(text for text in more if canonicalize_name(Requirement(text).name) not in names)


def read_build_system(archive: Path) -> BuildSystem:
    """Read the build system of a source distribution without unpacking it or running its code.

    ValueError: the file is not an archive, or its pyproject.toml is invalid.
    """
    try:
        text = _pyproject(archive)
        section = tomllib.loads(text or "").get("build-system", {})
    except _BROKEN as error:
        raise ValueError(f"it cannot be read: {error}") from None
    if text is None:
        return BuildSystem()
    if not isinstance(section, dict):
        raise ValueError("build-system in its pyproject.toml is not a table")  # noqa: TRY004
    strings = TypeAdapter(tuple[str, ...])
    requires = tuple(
        map(index_requirement, strings.validate_python(section.get("requires", _LEGACY)))
    )
    backend = TypeAdapter(str).validate_python(section.get("build-backend", ""))
    if not backend:
        return BuildSystem(tuple(dict.fromkeys((*requires, "wheel"))))
    return BuildSystem(requires, backend, strings.validate_python(section.get("backend-path", ())))


def _pyproject(archive: Path) -> str | None:
    """Return the text of pyproject.toml in the archive's top folder; None if it is missing."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                if _is_pyproject(entry.filename):
                    return read_member(zipped, entry, LARGEST_METADATA).decode("utf-8")
        return None
    # Only gzip can be unpacked with a size limit, and PEP 625 allows no other compression.
    with tarfile.open(archive, "r|gz", tarinfo=LimitedMember) as tar:
        for number, member in enumerate(stream_members(tar)):
            if number > MOST_FILES or member.offset_data + member.size > MOST_BYTES:
                raise ValueError("it is too large when unpacked")
            if _is_pyproject(member.name) and member.isfile():
                if member.size > LARGEST_METADATA:
                    raise ValueError("its pyproject.toml is too large")
                content = tar.extractfile(member)
                return content.read().decode("utf-8") if content else None
    return None


def _is_pyproject(name: str) -> bool:
    return name.removeprefix("./").split("/")[1:] == ["pyproject.toml"]
