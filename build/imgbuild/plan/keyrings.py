"""Other signing keys for apt repositories, where a mirror signs its own index."""

import hashlib
import shutil
from pathlib import Path

from imgbuild.errors import InputError
from imgbuild.files import stored_folder
from imgbuild.matrix.model import Matrix
from imgbuild.settings import Settings


def other_keyrings(matrix: Matrix, settings: Settings) -> dict[str, Path]:
    """Return the keyrings that the settings give, by the file name that the Dockerfiles use.

    Raises:
        InputError: a keyring is no readable binary OpenPGP keyring.

    """
    found = {}
    for name, mirror in settings.mirrors.items():
        upstream = matrix.upstreams.get(name)
        if mirror.keyring and upstream:
            if upstream.keyring is None:
                raise InputError(_useless(name))
            found[upstream.keyring.file] = _readable(name, Path(mirror.keyring))
    return found


def _useless(name: str) -> str:
    return (
        f"imgbuild.local.yaml: mirrors.{name}: a keyring would not be used. The sources of a base "
        "image are checked with its own keys: mirror the archive with its signatures, or take a "
        "base image that trusts the mirror's key. Other kinds of site are trusted by sha256."
    )


def keyrings_context(matrix: Matrix, settings: Settings, own: Path, cache: Path) -> Path | None:
    """Return a folder of all keyrings, some replaced; None where none is.

    ``own`` is the checkout's folder of keyrings.
    """
    others = other_keyrings(matrix, settings)
    if not others:
        return None
    files = {path.name: path for path in own.glob("*.gpg")} | others

    def make(folder: Path) -> None:
        for name, path in files.items():
            shutil.copyfile(path, folder / name)

    def is_whole(folder: Path) -> bool:
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else None
        return names == {*files} and _digest({n: folder / n for n in files}) == digest

    digest = _digest(files)
    return stored_folder(cache / "contexts" / f"keyrings-{digest[:16]}", make, is_whole)


def _digest(files: dict[str, Path]) -> str:
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _readable(name: str, path: Path) -> Path:
    try:
        head = path.read_bytes()[:1]
    except OSError as error:
        raise InputError(
            f"imgbuild.local.yaml: mirrors.{name}: keyring {path}: {error.strerror}."
        ) from error
    # A binary OpenPGP packet begins with its highest bit set; apt of 2016 reads no other kind.
    if not head or not head[0] & 0x80:
        raise InputError(
            f"imgbuild.local.yaml: mirrors.{name}: keyring {path} is no binary keyring. Make one "
            "of an armored key with `gpg --dearmor`."
        )
    return path
