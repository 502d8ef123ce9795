"""Files that settings name: secrets of builds (CAs, logins, mirrors), and keyrings of mirrors."""

import shutil
from pathlib import Path

from imgbuild.errors import InputError
from imgbuild.files import file_sha256, sha256, stored_folder, write_text
from imgbuild.matrix.model import Matrix
from imgbuild.settings import Settings


def build_secrets(settings: Settings, cache: Path) -> dict[str, Path]:
    """Return the files of the build's secrets by id: ``ca``, ``netrc``, ``upstreams``.

    Raises:
        InputError: a file that the settings name cannot be used.

    """
    found = {
        "ca": _ca_bundle(settings),
        "netrc": _netrc(settings),
        "upstreams": _upstreams(settings, cache),
    }
    return {name: path for name, path in found.items() if path}


def require_files(settings: Settings) -> None:
    """Raise unless the files that the settings name can be used.

    Raises:
        InputError: one cannot.

    """
    _ca_bundle(settings)
    _netrc(settings)


def _ca_bundle(settings: Settings) -> Path | None:
    if settings.ca_bundle is None:
        return None
    path = Path(settings.ca_bundle)
    if not path.is_file() or b"-----BEGIN CERTIFICATE-----" not in path.read_bytes():
        raise InputError(
            f"imgbuild.local.yaml: ca_bundle {path} is not a file of PEM certificates. Correct it, "
            "or take the line out and run `imgbuild doctor --write`."
        )
    return path


def _netrc(settings: Settings) -> Path | None:
    if settings.netrc is None:
        return None
    path = Path(settings.netrc)
    if not path.is_file():
        raise InputError(
            f"imgbuild.local.yaml: netrc {path} is no file. Correct the path, or take it out."
        )
    return path


def _upstreams(settings: Settings, cache: Path) -> Path | None:
    """Write the mirrors as lines ``NAME URL``, which images/files/apt-install reads."""
    if not settings.mirrors:
        return None
    text = "".join(f"{name} {mirror.url}\n" for name, mirror in sorted(settings.mirrors.items()))
    digest = sha256(text.encode())
    path = cache / "contexts" / f"upstreams-{digest[:16]}.txt"
    if not path.exists() or path.read_bytes() != text.encode():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    return path


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
    """Return a folder of all keyrings, some replaced; ``None`` if the settings replace none.

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
        return names == {*files} and _content_digest({n: folder / n for n in files}) == digest

    digest = _content_digest(files)
    return stored_folder(cache / "contexts" / f"keyrings-{digest[:16]}", make, is_whole)


def _content_digest(files: dict[str, Path]) -> str:
    parts = [
        f"{name}\0".encode() + bytes.fromhex(file_sha256(p)) for name, p in sorted(files.items())
    ]
    return sha256(b"".join(parts))


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
