"""Find and fetch the files of an extension's Python packages, without running their code."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from packaging.utils import parse_wheel_filename
from pydantic import TypeAdapter

from imgbuild.build.source_metadata import MetadataReader
from imgbuild.core.errors import MachineError
from imgbuild.core.files import ContentStore, json_sha256, write_text
from imgbuild.core.sources import Source
from imgbuild.core.user_folders import cache_dir
from imgbuild.extend.base_image import BaseImage
from imgbuild.inputs.download import prepare_downloads, show_progress
from imgbuild.inputs.upstream_files import lock_files
from imgbuild.locks.lockfile import Lock
from imgbuild.locks.requirements import uv_platform
from imgbuild.locks.resolver import Target
from imgbuild.matrix.model import Matrix
from imgbuild.net.sites import Sites

#: A file name from the index that is safe in a Dockerfile. Versions can have an epoch before ``!``.
#: Source: Binary distribution format, "File name convention".
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
_FILES = TypeAdapter(tuple[Source, ...])
#: A URL that ADD in a Dockerfile does not change: no variables, spaces or logins.
_ADDED_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]+)?/[A-Za-z0-9._~/%+,=?&@!:-]*")


def find_distributions(
    lock: Lock,
    wheels: Sequence[str],
    base: BaseImage,
    reader: MetadataReader,
    *,
    with_uv: bool,
) -> tuple[Source, ...]:
    """Return the files of a lock's packages, and of build tools for packages without a wheel.

    ``wheels`` are the paths of wheels that are not from an index. Set ``with_uv`` if the index has
    to provide uv, which installs the packages. If all files are cached, the index is not queried.

    CheckFailedError: the index has no file for a package, or the file cannot be built.
    MachineError: the index cannot be reached, or a source distribution needs an engine.
    """
    own = {parse_wheel_filename(Path(path).name)[0] for path in wheels}
    versions = {name: version for name, version in lock.versions.items() if name not in own}
    if not lock.entries:
        return ()
    hashes = {name: lock.hashes[name] for name in versions}
    target = base.target
    digest = json_sha256([versions, hashes, asdict(target), with_uv, reader.image_id])
    kept = cache_dir() / "distributions" / f"{digest}.json"
    store = ContentStore(cache_dir() / "downloads")
    try:
        known = _FILES.validate_json(kept.read_bytes())
    except (OSError, ValueError):
        known = ()
    if known and all(store.find(file.sha256) for file in known):
        return known
    needed = replace(lock, versions=versions)
    files = [*lock_files(needed, "the lock", target, reader.sites)] if versions else []
    names: dict[str, str] = {}
    for name, digests in lock.hashes.items():
        names |= dict.fromkeys(digests, name)
    for file in tuple(files):
        if not file.name.endswith(".whl"):
            name = names[file.sha256]
            files += reader.build_tools(name, lock.versions[name], file, target)
    if with_uv:
        files.append(_uv_wheel(reader.matrix, reader.sites, target.machine))
    distributions = tuple(dict.fromkeys(files))
    write_text(kept, json.dumps([asdict(file) for file in distributions]) + "\n")
    return distributions


def _uv_wheel(matrix: Matrix, sites: Sites, machine: str) -> Source:
    """Return uv's wheel, which only contains a program and works with any Python."""
    lock = Lock("", {"uv": matrix.uv.version}, {"uv": matrix.uv.hashes})
    (file,) = lock_files(lock, "matrix.yaml", Target("3.11", uv_platform("2.17", machine)), sites)
    return file


def distributions_context(files: Sequence[Source], sites: Sites) -> Path | None:
    """Return a folder with the files; None if there are none. Errors: see `prepare_downloads`."""
    if not files:
        return None
    with show_progress() as progress:
        return prepare_downloads(files, cache_dir(), sites, progress)


def add_lines(files: Iterable[Source]) -> list[str]:
    """Return Dockerfile lines that download the files and verify their sha256.

    MachineError: a URL from the index cannot be written into a Dockerfile.
    """
    lines = []
    for file in files:
        if not _FILE_NAME.fullmatch(file.name):
            raise MachineError(
                f"The file name {file.name[:80]!r} from the package index cannot be written into a "
                "Dockerfile. Use another index."
            )
        if file.url.startswith("file://"):
            lines.append(
                f"# {file.name} is a file of another machine: name a FOLDER with all files."
            )
        elif _ADDED_URL.fullmatch(file.url):
            lines.append(f"ADD --checksum=sha256:{file.sha256} {file.url} /{file.name}")
        else:
            raise MachineError(
                f"The address of {file.name} cannot be written into a Dockerfile. Build with "
                "`imgbuild extend` without --print, or use another index."
            )
    return lines
