"""A signed apt repository: a folder of packages with indices. Format: Debian's RepositoryFormat."""

from __future__ import annotations

import gzip
import hashlib
from email.utils import formatdate
from typing import TYPE_CHECKING

from standin.deb import TIME, format_control, open_tar, parse_control, read_archive

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from standin.signing import SigningKey


def write_flat(folder: Path, origin: str, key: SigningKey) -> None:
    """Index the packages of ``folder`` as a repository of the kind ``deb URL/FOLDER /``."""
    _write_packages(folder, sorted(folder.glob("*.deb")), folder)
    _write_release(folder, {"Origin": origin, "Label": origin, "Suite": ""}, key)


def write_suite(
    root: Path, suite: str, components: Iterable[str], packages: Iterable[Path], key: SigningKey
) -> None:
    """Index ``packages``, files below ``root``, as the suite ``root``/dists/``suite``.

    The first component has all of the packages, the others are empty.
    """
    folder = root / "dists" / suite
    listed = sorted(packages)
    for component in components:
        for architecture in ("amd64", "all"):
            place = folder / component / f"binary-{architecture}"
            _write_packages(place, listed if architecture == "amd64" else [], root)
        listed = []
    about = {"Origin": "Ubuntu", "Label": "Ubuntu stand-in", "Suite": suite}
    more = {"Codename": suite.partition("-")[0], "Architectures": "amd64 all"}
    _write_release(folder, {**about, **more, "Components": " ".join(components)}, key)


def _write_packages(place: Path, packages: Iterable[Path], root: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    text = "\n".join(_paragraph(path, root) for path in packages)
    (place / "Packages").write_text(text, encoding="utf-8")
    (place / "Packages.gz").write_bytes(gzip.compress(text.encode(), 6, mtime=0))


def _paragraph(package: Path, root: Path) -> str:
    with open_tar(read_archive(package), "control") as archive:
        stream = archive.extractfile("./control")
        fields = parse_control(stream.read().decode() if stream else "")
    content = package.read_bytes()
    found = {
        "Filename": f"./{package.relative_to(root).as_posix()}",
        "Size": str(len(content)),
        "MD5sum": hashlib.md5(content, usedforsecurity=False).hexdigest(),
        "SHA256": hashlib.sha256(content).hexdigest(),
    }
    return format_control({**fields, **found})


def _write_release(folder: Path, about: Mapping[str, str], key: SigningKey) -> None:
    files = sorted(path for path in folder.rglob("Packages*") if path.is_file())
    lines = [_checksum_line(path, folder) for path in files]
    fields = {**about, "Date": formatdate(TIME, usegmt=True).replace("GMT", "UTC")}
    given = {name: value for name, value in fields.items() if value}
    release = folder / "Release"
    text = format_control({**given, "SHA256": "\n" + "\n".join(lines)})
    release.write_text(text, encoding="utf-8")
    key.sign(release)


def _checksum_line(path: Path, folder: Path) -> str:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return f" {digest} {len(content)} {path.relative_to(folder).as_posix()}"
