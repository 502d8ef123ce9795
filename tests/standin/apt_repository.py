"""Apt repositories and the keys that sign them. Format: Debian's RepositoryFormat."""

import gzip
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from standin.context import Context
from standin.deb import TIME, format_control, run_dpkg_deb

_USER = "imgbuild stand-in (for tests only) <stand-in@localhost>"


@dataclass(frozen=True)
class SigningKey:
    """A folder with the secret key, and its public half as apt reads it."""

    folder: Path

    @property
    def keyring(self) -> Path:
        return self.folder / "keyring.gpg"

    @property
    def fingerprint(self) -> str:
        return (self.folder / "fingerprint").read_text(encoding="ascii").strip()

    def sign(self, release: Path) -> None:
        """Write ``InRelease`` and ``Release.gpg`` beside the file ``Release``."""
        with _gpg_home() as home:
            _gpg(home, "--import", str(self.folder / "secret.gpg"))
            inline = str(release.with_name("InRelease"))
            detached = str(release.with_name("Release.gpg"))
            _gpg(home, "--clearsign", "--output", inline, str(release))
            _gpg(home, "--armor", "--detach-sign", "--output", detached, str(release))


def signing_key(context: Context, name: str) -> SigningKey:
    """Return the key called ``name``, made on first use; it is valid for ten years."""
    return SigningKey(context.stored(f"key-{name}", [], (), _make_key))


def _make_key(folder: Path) -> None:
    with _gpg_home() as home:
        _gpg(home, "--passphrase", "", "--quick-generate-key", _USER, "rsa3072", "sign", "10y")
        _gpg(home, "--output", str(folder / "keyring.gpg"), "--export")
        _gpg(home, "--output", str(folder / "secret.gpg"), "--export-secret-keys")
        listed = _gpg(home, "--list-keys", "--with-colons")
    fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line[:3] == "fpr")
    (folder / "fingerprint").write_text(fingerprint + "\n", encoding="ascii")
    (folder / "secret.gpg").chmod(0o600)


@contextmanager
def _gpg_home() -> Iterator[str]:
    """Give a home of gpg's, short since sockets have short names; its agent ends with it.

    Not before: a gpg that begins while the agent ends cannot sign.
    """
    with tempfile.TemporaryDirectory(prefix="standin-", ignore_cleanup_errors=True) as home:
        try:
            yield home
        finally:
            kill = ["gpgconf", "--homedir", home, "--kill", "gpg-agent"]
            subprocess.run(kill, capture_output=True, check=False)


def _gpg(home: str, *arguments: str) -> str:
    command = ["gpg", "--batch", "--quiet", "--no-tty", "--pinentry-mode", "loopback", *arguments]
    environment = {**os.environ, "GNUPGHOME": home}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def write_flat(folder: Path, origin: str, key: SigningKey) -> None:
    """Index the packages of ``folder`` as a repository of the kind ``deb URL/FOLDER /``."""
    _write_packages(folder, sorted(folder.glob("*.deb")), folder)
    _write_release(folder, {"Origin": origin, "Label": origin, "Suite": ""}, key)


def write_suite(  # noqa: PLR0913, PLR0917 - what a suite is made of
    root: Path,
    suite: str,
    components: Iterable[str],
    packages: Iterable[Path],
    key: SigningKey,
    valid_until: str = "",
) -> None:
    """Index ``packages``, files below ``root``, as a suite; the first component has all of them."""
    folder = root / "dists" / suite
    listed = sorted(packages)
    for component in components:
        for architecture in ("amd64", "all"):
            place = folder / component / f"binary-{architecture}"
            _write_packages(place, listed if architecture == "amd64" else [], root)
        listed = []
    about = {"Origin": "Ubuntu", "Label": "Ubuntu stand-in", "Suite": suite}
    more = {"Codename": suite.partition("-")[0], "Architectures": "amd64 all"}
    more["Valid-Until"] = valid_until
    _write_release(folder, {**about, **more, "Components": " ".join(components)}, key)


def _write_packages(place: Path, packages: Iterable[Path], root: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    text = "\n".join(_paragraph(path, root) for path in packages)
    (place / "Packages").write_text(text, encoding="utf-8")
    (place / "Packages.gz").write_bytes(gzip.compress(text.encode(), 6, mtime=0))


def _paragraph(package: Path, root: Path) -> str:
    content = package.read_bytes()
    found = {
        "Filename": f"./{package.relative_to(root).as_posix()}",
        "Size": str(len(content)),
        "MD5sum": hashlib.md5(content, usedforsecurity=False).hexdigest(),
        "SHA256": hashlib.sha256(content).hexdigest(),
    }
    return run_dpkg_deb("--field", package) + format_control(found)


def _write_release(folder: Path, about: Mapping[str, str], key: SigningKey) -> None:
    lines = [_checksum_line(path, folder) for path in sorted(folder.rglob("Packages*"))]
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
