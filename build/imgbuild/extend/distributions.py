"""The files of an extension's Python packages, which are fetched here as data."""

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
from imgbuild.locks.requirements import PLATFORM
from imgbuild.locks.resolver import Target
from imgbuild.matrix.model import Matrix
from imgbuild.net.sites import Sites

#: A file name of the index in a Dockerfile. Source: Binary distribution format, "File name
#: convention"; versions can have an epoch before ``!``.
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
_FILES = TypeAdapter(tuple[Source, ...])
#: An address that ADD of a Dockerfile reads as it is written: no variable, no space, no login.
_ADDED_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]+)?/[A-Za-z0-9._~/%+,=?&@!:-]*")


def find_distributions(
    lock: Lock,
    wheels: Sequence[str],
    base: BaseImage,
    reader: MetadataReader,
    *,
    with_uv: bool,
) -> tuple[Source, ...]:
    """Return the files of a lock's packages, and of what builds those that have no wheel.

    ``wheels`` are paths of packages that are no index's. ``with_uv`` is whether uv, which installs
    them, has to come from the index. No index is asked for files that are all in the cache.

    CheckFailedError: the index has no file of a package, or one that cannot be built.
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
        files.append(_uv_wheel(reader.matrix, reader.sites))
    distributions = tuple(dict.fromkeys(files))
    write_text(kept, json.dumps([asdict(file) for file in distributions]) + "\n")
    return distributions


def _uv_wheel(matrix: Matrix, sites: Sites) -> Source:
    """Return uv's wheel, which has only its program, so that any Python can unpack it."""
    lock = Lock("", {"uv": matrix.uv.version}, {"uv": (matrix.uv.sha256,)})
    (file,) = lock_files(lock, "matrix.yaml", Target("3.11", PLATFORM), sites)
    return file


def distributions_context(files: Sequence[Source], sites: Sites) -> Path | None:
    """Return a folder with the files, None if there is none; raises as `prepare_downloads`."""
    if not files:
        return None
    with show_progress() as progress:
        return prepare_downloads(files, cache_dir(), sites, progress)


def add_lines(files: Iterable[Source]) -> list[str]:
    """Return the lines of a Dockerfile that download the files, each by its sha256.

    MachineError: the index names an address that a Dockerfile cannot hold.
    """
    lines = []
    for file in files:
        if not _FILE_NAME.fullmatch(file.name):
            raise MachineError(f"The index names a file {file.name[:80]!r}: use another index.")
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
