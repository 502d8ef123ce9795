"""Wheels of the Python index, pinned by hash, whose content goes into stand-ins."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

from standin.context import HERE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from standin.context import Context


def wheels(context: Context, requirements: str) -> list[Path]:
    """Return the wheels that a requirements file of this folder pins, downloaded once.

    Raises:
        RuntimeError: pip could not get them.

    """

    def download(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-cache-dir", "--only-binary", ":all:", "--require-hashes"]
        command += ["--dest", str(folder), "--requirement", str(HERE / requirements)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{requirements}: {done.stderr[-2000:]}")

    name = f"wheels-{requirements.removesuffix('.txt').removeprefix('requirements-')}"
    return sorted(context.stored(name, [], (requirements,), download).glob("*.whl"))


def files_below(wheel: Path, folder: str) -> Iterator[tuple[str, bytes, int]]:
    """Yield path (relative to ``folder``), content and mode of the files below it in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith(folder) and not entry.is_dir():
                mode = entry.external_attr >> 16 & 0o777
                yield entry.filename.removeprefix(folder), archive.read(entry), mode or 0o644
