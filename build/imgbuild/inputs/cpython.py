"""An interpreter for the images, made from a CPython prefix of this machine.

It stands in for the stage that compiles CPython from source: same place in the image, seconds
instead of minutes. What is made depends on the prefix alone and names nothing of this machine.
"""

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from imgbuild.errors import CheckFailedError, InputError
from imgbuild.files import stored_folder
from imgbuild.inputs.cpython_prefix import (
    Interpreter,
    find_prefixes,
    interpreter_path,
    probe,
    verify_prefix,
)
from imgbuild.inputs.elf import is_elf, require_elf_tools, set_search_path, strip
from imgbuild.inputs.machine_paths import check_no_paths, replace_paths
from imgbuild.inputs.prefix_copy import copy_prefix
from imgbuild.inputs.tree_digest import set_times, tree_digest, tree_fingerprint

__all__ = ["RelocatedPrefix", "find_prefixes", "relocate_prefix"]

#: Raise it when this code makes something else from the same prefix.
RELOCATION_VERSION = 1
#: 1980-01-01, the first time that a zip archive (a wheel made of these files) can hold.
DEFAULT_EPOCH = 315532800
_BUILD_FOLDER = "/usr/src/python"


@dataclass(frozen=True)
class RelocatedPrefix:
    """An interpreter whose files can be copied into an image."""

    path: Path
    """The folder whose content belongs at the target."""
    digest: str
    """``sha256:…`` over its sorted tree: paths, modes, link targets, contents."""


def relocate_prefix(
    prefix: Path,
    version: str,
    cache: Path,
    target: str = "/opt/python",
    *,
    epoch: int = DEFAULT_EPOCH,
) -> RelocatedPrefix:
    """Return the interpreter of ``prefix``, made to live at ``target`` in an image.

    Without byte code (Python 3.6 knows only byte code that depends on file times; a later stage
    compiles it), tests, tkinter and installed packages. All times are ``epoch``, in seconds.

    Raises:
        InputError: the prefix is not a complete CPython of exactly ``version`` for x86-64.
        MachineError: binutils or patchelf is missing, the cache cannot be written.
        CheckFailedError: the result still names this machine, or does not run.

    """
    final = cache / "cpython" / f"{version}-{_source_key(prefix, version, target, epoch)}"

    def make(folder: Path) -> None:
        require_elf_tools()
        source = verify_prefix(prefix, version)
        tree = folder / "tree"
        tree.mkdir()
        _relocate(prefix, source, tree, target)
        set_times(tree, epoch)
        stamp = {"digest": tree_digest(tree), "fingerprint": tree_fingerprint(tree)}
        (folder / "stamp.json").write_text(json.dumps(stamp), encoding="utf-8")

    # Telling whether it was touched takes a look at each of its files: once, if it was not.
    known: list[str] = []

    def is_whole(folder: Path) -> bool:
        digest = _stored_digest(folder)
        known.extend([digest] if digest else [])
        return digest is not None

    stored_folder(final, make, is_whole)
    digest = known[0] if known else _stored_digest(final)
    if digest is None:
        raise CheckFailedError(
            f"The interpreter in {final} changed while it was being made. Run this again."
        )
    return RelocatedPrefix(final / "tree", digest)


def _relocate(prefix: Path, source: Interpreter, tree: Path, target: str) -> None:
    minor = source.version.rpartition(".")[0]
    copy_prefix(prefix, minor, tree)
    _relink(tree, minor)
    names = _machine_names(prefix, source, target)
    replace_paths(tree, names)
    check_no_paths(tree, names)
    _check_runs(tree, source)


def _relink(tree: Path, minor: str) -> None:
    """Strip every ELF file and make it find libpython from where it is itself."""
    modules = tree / "lib" / f"python{minor}" / "lib-dynload"
    places = {
        tree / "bin": "$ORIGIN/../lib",
        tree / "lib": "$ORIGIN",
        modules: "$ORIGIN/../..",
    }
    for folder, search_path in places.items():
        files = sorted(path for path in folder.iterdir() if _is_real_elf(path))
        # In this order: strip damages what patchelf has rearranged.
        strip(files)
        set_search_path(files, search_path)


def _is_real_elf(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and is_elf(path)


def _machine_names(prefix: Path, source: Interpreter, target: str) -> dict[str, str]:
    """Return the folders of this machine that the files may name, and what they become."""
    prefixes = {str(prefix), str(prefix.resolve()), source.prefix, source.recorded} - {target}
    names = dict.fromkeys(prefixes, target)
    if source.build_folder.startswith("/"):
        names[source.build_folder] = _BUILD_FOLDER
    return names


def _check_runs(tree: Path, source: Interpreter) -> None:
    """See that the copy runs from where it is, and from nothing but itself and the system."""
    copy = probe(interpreter_path(tree, source.version))
    old = (source.prefix + "/", source.recorded + "/")
    borrowed = [path for path in copy.libraries if path.startswith(old)]
    same = (copy.version, copy.missing) == (source.version, {})
    if borrowed or not same or copy.prefix != str(tree):
        raise CheckFailedError(
            f"The relocated copy of {source.prefix} is not right: it calls itself {copy.version} "
            f"in {copy.prefix}, lacks {sorted(copy.missing) or 'no module'} and loads "
            f"{borrowed or 'nothing'} from the old place. Compile this interpreter from source: "
            "remove its cpython entry from imgbuild.local.yaml."
        )


def _source_key(prefix: Path, version: str, target: str, epoch: int) -> str:
    """Return 16 digits that change when the prefix was rebuilt, without reading all of it."""
    python = interpreter_path(prefix, version)
    minor = version.rpartition(".")[0]
    try:
        status = python.stat()
        levels = sorted((prefix / "include").glob(f"python{minor}*/patchlevel.h"))
        patchlevel = [path.read_text(encoding="utf-8", errors="replace") for path in levels]
    except OSError as error:
        raise InputError(
            f"There is no CPython {version} in {prefix}: {python}: {error.strerror}. Name another "
            f"prefix in imgbuild.local.yaml (cpython: from: prefix), or `pyenv install {version}`."
        ) from error
    parts = [
        RELOCATION_VERSION, str(prefix), version, target, epoch,
        status.st_size, status.st_mtime_ns, patchlevel,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _stored_digest(folder: Path) -> str | None:
    """Return the digest of a stored interpreter, or nothing if it is absent or was touched."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        stamp = json.loads((folder / "stamp.json").read_bytes())
        if stamp["fingerprint"] == tree_fingerprint(folder / "tree"):
            return str(stamp["digest"])
    return None
