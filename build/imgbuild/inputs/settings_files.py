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
    found = secret_files(settings)
    if settings.mirrors:
        # Lines NAME URL, which images/files/apt-install reads.
        mirrors = sorted(settings.mirrors.items())
        text = "".join(f"{name} {mirror.url}\n" for name, mirror in mirrors)
        path = cache / "contexts" / f"upstreams-{sha256(text.encode())[:16]}.txt"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
        found["upstreams"] = path
    return found


def secret_files(settings: Settings) -> dict[str, Path]:
    """Return the files that the settings name for secrets: ``ca`` and ``netrc``.

    Raises:
        InputError: one cannot be used.

    """
    named = {"ca": settings.ca_bundle, "netrc": settings.netrc}
    found = {name: Path(path) for name, path in named.items() if path is not None}
    ca, netrc = found.get("ca"), found.get("netrc")
    if ca and not (ca.is_file() and b"-----BEGIN CERTIFICATE-----" in ca.read_bytes()):
        raise InputError(
            f"imgbuild.local.yaml: ca_bundle {ca} is not a file of PEM certificates. Correct it, "
            "or take the line out and run `imgbuild doctor --write`."
        )
    if netrc and not netrc.is_file():
        raise InputError(
            f"imgbuild.local.yaml: netrc {netrc} is no file. Correct the path, or take it out."
        )
    return found


def other_keyrings(matrix: Matrix, settings: Settings) -> dict[str, Path]:
    """Return the keyrings that the settings give, by the file name that the Dockerfiles use.

    Raises:
        InputError: a keyring is no readable binary OpenPGP keyring, or would not be used.

    """
    found = {}
    for name, mirror in settings.mirrors.items():
        upstream = matrix.upstreams.get(name)
        if not mirror.keyring or not upstream:
            continue
        where, path = f"imgbuild.local.yaml: mirrors.{name}", Path(mirror.keyring)
        if upstream.keyring is None:
            raise InputError(
                f"{where}: a keyring would not be used. The sources of a base image are checked "
                "with its own keys: mirror the archive with its signatures, or take a base image "
                "that trusts the mirror's key. Other kinds of site are trusted by sha256."
            )
        try:
            head = path.read_bytes()[:1]
        except OSError as error:
            raise InputError(f"{where}: keyring {path}: {error.strerror}.") from error
        # A binary OpenPGP packet begins with its highest bit set; apt of 2016 reads no other kind.
        if not head or not head[0] & 0x80:
            raise InputError(
                f"{where}: keyring {path} is no binary keyring. Make one of an armored key with "
                "`gpg --dearmor`."
            )
        found[upstream.keyring.file] = path
    return found


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
