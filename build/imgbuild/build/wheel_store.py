"""Compiled Horovod wheels, kept in this user's cache: compiling them is most of a build's time."""

import base64
import csv
import hashlib
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from imgbuild.files import stored_folder

#: Enough of a key to tell two wheels apart.
DIGITS = 16


@dataclass(frozen=True)
class WheelStore:
    """Folders ``<key>/horovod-….whl``. A damaged wheel is as good as none."""

    folder: Path

    def find(self, key: str) -> Path | None:
        """Return the folder that holds the wheel of ``key`` alone, if it is there and whole."""
        found = self._place(key)
        return found if is_whole(found) else None

    def adopt(self, key: str, exported: Path) -> Path | None:
        """Keep the wheel that a build exported into a folder; ``None`` if there is none, or half.

        Raises:
            MachineError: the cache cannot be written.

        """
        if not is_whole(exported):
            return None

        def make(fresh: Path) -> None:
            for wheel in exported.glob("*.whl"):
                shutil.copyfile(wheel, fresh / wheel.name)

        return stored_folder(self._place(key), make, is_whole)

    def _place(self, key: str) -> Path:
        return self.folder / key[:DIGITS]


def is_whole(folder: Path) -> bool:
    """Return whether the folder holds exactly one wheel, with all that its RECORD tells of."""
    files = [*folder.iterdir()] if folder.is_dir() else []
    return len(files) == 1 and files[0].suffix == ".whl" and _is_as_recorded(files[0])


def _is_as_recorded(wheel: Path) -> bool:
    """Return whether each file has the hash that the RECORD names. Source: PEP 427."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = {name for name in archive.namelist() if not name.endswith("/")}
            (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
            rows = [row for row in csv.reader(archive.read(record).decode().splitlines()) if row]
            told = {name: value for name, value, *_ in rows if value}
            return names == {*told, record} and all(
                value == f"sha256={_urlsafe_sha256(archive.read(name))}"
                for name, value in told.items()
            )
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return False


def _urlsafe_sha256(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
