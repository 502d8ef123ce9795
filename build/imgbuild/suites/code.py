"""The suites of the checkout: which there are, for which images, and the digest of their code."""

import hashlib
from pathlib import Path

from imgbuild.errors import InputError
from imgbuild.matrix.model import Variant

PREFIX = "test_"
#: What the suites begin with that only images with CUDA have.
GPU_PREFIX = "gpu_"


def list_suites(folder: Path, variant: Variant) -> tuple[str, ...]:
    """Return the suites of one variant's images: the files ``test_NAME.py`` of ``folder``."""
    known = _files(folder)
    return tuple(name for name in known if variant == "gpu" or not name.startswith(GPU_PREFIX))


def choose_suites(folder: Path, wanted: tuple[str, ...], variant: Variant) -> tuple[str, ...]:
    """Return the wanted suites of one variant's images, all if none is named.

    Raises:
        InputError: a name is no suite of such images; those that are are listed.

    """
    known = list_suites(folder, variant)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        only = any(name in _files(folder) for name in unknown)
        which = f"No suite of {variant} images is called" if only else "No suite"
        raise InputError(f"{which} {', '.join(unknown)}. There are: {', '.join(known)}.")
    return tuple(name for name in known if not wanted or name in wanted)


def code_digest(folder: Path) -> str:
    """Return the sha256 of all suite code: a report counts only for the code that made it."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"


def _files(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem.removeprefix(PREFIX) for path in folder.glob(f"{PREFIX}*.py")))
