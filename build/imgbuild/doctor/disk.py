"""Is there room? A TensorFlow image is about 1 GB, its layers once more while it is built."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from imgbuild.doctor.finding import Finding, Status, fine, skipped

GB = 10**9
LOW = 10 * GB
TOO_LOW = 3 * GB


def free_bytes(path: Path) -> int:
    """Return what an ordinary user may still write where ``path`` is, or will be."""
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    return shutil.disk_usage(existing).free


def check_disk(
    what: str, path: Path, mend: str, measure: Callable[[Path], int] = free_bytes
) -> Finding:
    """Return whether the file system of ``path`` has room for images."""
    try:
        free = measure(path)
    except OSError as error:
        return skipped(what, f"{path}: {os.strerror(error.errno or 0)}")
    detail = f"{free / GB:.0f} GB free in {path}"
    if free < TOO_LOW:
        return Finding(Status.MISSING, what, f"{detail}; a build needs 3 GB", mend)
    if free < LOW:
        return Finding(Status.WARNING, what, f"{detail}; an image takes about 1 GB", mend)
    return fine(what, detail)
