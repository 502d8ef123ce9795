"""Find an image's files at their upstreams: the base image, Python packages and apt packages."""

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from packaging.markers import Environment, default_environment
from packaging.pylock import Package, PackageSdist, PackageWheel, PylockSelectError
from packaging.tags import Tag, compatible_tags, cpython_tags

from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.core.files import ContentStore, ensure_folder, file_sha256, work_folder
from imgbuild.core.parallel import in_parallel
from imgbuild.core.sources import Kind, Source
from imgbuild.dockerfile.stages import Dockerfile, Stage
from imgbuild.inputs.fetched import APT_INSTALL, install_instruction
from imgbuild.inputs.oci_layout import is_pinned, is_whole, name_image, short_id, write_blob
from imgbuild.locks.lockfile import Lock, read_lock
from imgbuild.locks.requirements import index_environment, uv_platform
from imgbuild.locks.resolver import Target, file_digest, find_files
from imgbuild.matrix.images import Image
from imgbuild.net.addresses import has_registry
from imgbuild.net.authorization import docker_credentials
from imgbuild.net.repository import HUB, Manifest, RepositoryName, split_reference
from imgbuild.net.repository_client import RegistryClient
from imgbuild.net.sites import Credentials, Sites

_CONNECTIONS = 4
#: Time limit for an apt plan, which downloads lists. It takes seconds if the archive is fast.
PLAN_SECONDS = 900
_CACHE_MOUNT = re.compile(r"--mount=type=cache,\S+ (?:\\\n\s*)?")
#: Keep apt from compressing lists (``.lz4``), because the archive signed only the plain files.
_PLAIN_LISTS = """RUN echo 'Acquire::GzipIndexes "false";' > /etc/apt/apt.conf.d/zz-plain-lists\n"""
#: A line of ``apt-get --print-uris``: the URL, file name, size in bytes and sha256 of a package.
_URI = re.compile(r"'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})")


def find_image(reference: str, sites: Sites) -> tuple[RegistryClient, Manifest]:
    """Return a client and the manifest of ``NAME@sha256:DIGEST``.

    If the image has several platforms, return the manifest for linux/amd64. Logins come from the
    Docker client, or else from the netrc file.

    CheckFailedError: the content has another digest, or there is no image for linux/amd64.
    MachineError: the registry cannot be reached, does not have the image, or requires a login.
    """

    def credentials(host: str) -> Credentials | None:
        return docker_credentials(host) or sites.login(f"https://{host}/")

    def login_error(text: str) -> MachineError:
        return MachineError(f"{text} A login in a netrc file (settings: netrc) works as well.")

    name, _, digest = split_reference(reference)
    if not has_registry(name):  # Docker Hub has its official images below `library`
        name = f"{HUB}/{name}" if "/" in name else f"{HUB}/library/{name}"
    host, _, path = name.partition("/")
    client = RegistryClient(RepositoryName(host, path), sites.client(), credentials, login_error)
    manifest = _manifest(client, digest, reference)
    platforms = manifest.document().get("manifests")
    if platforms is None:
        return client, manifest
    own = {"os": "linux", "architecture": "amd64"}.items()
    for platform in platforms:
        if own <= platform.get("platform", {}).items():
            return client, _manifest(client, platform["digest"], reference)
    raise CheckFailedError(f"{reference} has no image for linux/amd64. Use another base image.")


def fetch_layout(reference: str, os_name: str, parent: Path, sites: Sites) -> Path:
    """Pull ``NAME@sha256:DIGEST`` to a layout in ``parent``, and return the layout.

    Raise the errors of `find_image`.
    """
    client, manifest = find_image(reference, sites)
    document = manifest.document()
    image_id = document["config"]["digest"]
    digests = {image_id}
    digests.update(layer["digest"] for layer in document["layers"])
    pinned = reference.rpartition("@")[2]

    def make(folder: Path) -> None:
        def fetch(digest: str) -> None:
            content = client.blob(digest)
            write_blob(folder, digest, content)

        in_parallel(fetch, [*digests], _CONNECTIONS, stop=client.close)
        name_image(folder, manifest.content, os_name)
        # The reference may name a list of platforms, so store the content of its digest as well.
        listed = _manifest(client, pinned, reference)
        write_blob(folder, pinned, listed.content)

    def is_complete(folder: Path) -> bool:
        return is_whole(folder) and is_pinned(folder, pinned)

    final = parent / f"{os_name}-{short_id(image_id)}"
    return ensure_folder(final, make, is_complete)


def _manifest(client: RegistryClient, digest: str, reference: str) -> Manifest:
    manifest = client.manifest(digest)
    if manifest is None:
        raise MachineError(f"The registry does not have {reference}.")
    return manifest


def python_items(image: Image, locks: Path, sites: Sites) -> tuple[Source, ...]:
    """Return the file that uv would install for each package of the image's locks, and Horovod's.

    uv finds the files in the mirror ``python-index``, or else in the index of its configuration.
    Horovod's file is the source distribution.

    CheckFailedError: the index has no file of a package, or its file is not in the lock.
    MachineError: the index cannot be reached.
    """
    glibc = image.os.glibc
    target = Target(image.version_of("python"), uv_platform(glibc, image.machine), glibc)
    files: list[Source] = []
    for name in image.lock_names:
        lock = read_lock(locks / name)
        files += lock_files(lock, name, target, sites)
    if image.horovod_source:
        version, digest = image.horovod_source
        source = Lock("", {"horovod": version}, {"horovod": (digest,)})
        files += lock_files(source, "matrix.yaml", target, sites, sources=True)
    return tuple(dict.fromkeys(files))


def lock_files(
    lock: Lock, name: str, target: Target, sites: Sites, *, sources: bool = False
) -> Iterator[Source]:
    """Yield one file for each package of a lock: the best wheel, or else the source distribution.

    With ``sources``, always yield the source distribution. ``name`` is the lock's name, for errors.
    Raise the errors of `python_items`.
    """
    environment: Environment = {
        **default_environment(),
        "python_full_version": target.python,
        "platform_machine": target.machine,
    }
    tags = [] if sources else _list_wheel_tags(target)
    try:
        with work_folder("python-files") as folder:
            pylock = find_files(name, lock.versions, target, folder, index_environment(sites))
        packages = [_with_locked_files(package, lock) for package in pylock.packages]
        pylock = replace(pylock, packages=packages)
        for package, file in pylock.select(environment=environment, tags=tags):
            if not isinstance(file, PackageWheel | PackageSdist) or not file.url:
                continue  # uv finds no other kinds of files for an exact version
            digest = file_digest(file.filename, file.url, file.hashes)
            if digest not in lock.hashes[package.name]:
                raise CheckFailedError(
                    f"The Python package index has {file.filename} with sha256 {digest}, which is "
                    f"not in {name}. Find out which of the two is right before you continue."
                )
            yield Source(file.filename, file.url, digest, file.size, Kind.PYTHON)
    except PylockSelectError as error:
        raise CheckFailedError(
            f"The Python package index has no file for Python {target.python}: {error}."
        ) from error


def _with_locked_files(package: Package, lock: Lock) -> Package:
    """Return a package with only its locked wheels, or unchanged if it has none, as uv does."""
    locked = lock.hashes[package.name]
    wheels = [wheel for wheel in package.wheels or () if wheel.hashes.get("sha256") in locked]
    return replace(package, wheels=wheels) if wheels else package


def _list_wheel_tags(target: Target) -> list[Tag]:
    """Return the tags of wheels for this target, best first.

    Like uv in the build, list all versions of glibc down to 2.5, some also by an older name
    (PEP 600).
    """
    version = tuple(int(part) for part in target.minor.split("."))
    cpython = f"cp{target.minor.replace('.', '')}"
    old = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    minors = range(int(target.glibc.partition(".")[2] or 17), 4, -1)
    platforms: list[str] = []
    for minor in minors:
        platforms.append(f"manylinux_2_{minor}_{target.machine}")
        if minor in old:
            platforms.append(f"{old[minor]}_{target.machine}")
    platforms.append(f"linux_{target.machine}")
    abi = f"{cpython}m" if version < (3, 8) else cpython
    return [*cpython_tags(version, [abi], platforms), *compatible_tags(version, cpython, platforms)]


def add_plans(dockerfile: Dockerfile, stages: Sequence[Stage], target: str) -> str:
    """Return the Dockerfile with a last stage ``target`` that has an apt plan for each stage.

    A plan lists the files that apt would download to install the stage's packages. It starts from
    the stage's parent, so that apt decides as in the build.
    """
    plans = copies = ""
    for stage in stages:
        name = plan_name(stage)
        plans += f"\nFROM {stage.parent} AS {name}\n{_PLAIN_LISTS}{_planned(stage)}"
        copies += f"COPY --from={name} /out /\n"
    return f"{dockerfile.text}{plans}\nFROM scratch AS {target}\n{copies}"


def plan_name(stage: Stage) -> str:
    return f"plan-{stage.name}"


def _planned(stage: Stage) -> str:
    # Remove the mounts of apt's caches. Their locks would make plans wait for installations. apt's
    # own time limit stops only silent servers, so limit the time for slow servers as well.
    alone = _CACHE_MOUNT.sub("", install_instruction(stage))
    limited = f"timeout {PLAN_SECONDS} {APT_INSTALL} --plan /out/{stage.name}"
    return alone.replace(APT_INSTALL, limited)


def apt_items(out: Path, stages: Sequence[Stage], store: ContentStore) -> Iterator[Source]:
    """Yield the packages, lists and mirrors of the plans that `add_plans` exported to ``out``.

    Put the lists and mirrors into ``store``, because an installation without a network reads them.
    """
    for stage in stages:
        folder = out / stage.name
        uris = (folder / "uris").read_text(encoding="utf-8")
        for line in uris.splitlines():
            yield _package(line)
        lists = folder / "lists"
        for path in sorted(lists.iterdir()):
            yield _stored(path, store, Kind.APT_LIST)
        yield _stored(folder / "upstreams", store, Kind.APT_MIRRORS)


def _package(line: str) -> Source:
    match = _URI.fullmatch(line.strip())
    if not match:
        raise MachineError(
            f"apt lists a package without a sha256, so it cannot be fetched: {line!r}. Use an "
            "archive whose lists have SHA256."
        )
    url, name, size, digest = match.groups()
    return Source(name, url, digest, int(size), Kind.APT_PACKAGE)


def _stored(path: Path, store: ContentStore, kind: Kind) -> Source:
    digest = file_sha256(path)
    store.put(digest, partial(shutil.copyfile, path))
    return Source(path.name, "", digest, path.stat().st_size, kind)
