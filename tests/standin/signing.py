"""The keys that sign the stand-in repositories, made once on each machine."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from standin.context import Context

_USER = "imgbuild stand-in (for tests only) <stand-in@localhost>"


@dataclass(frozen=True)
class SigningKey:
    """A folder with the secret key, and its public half as apt reads it."""

    folder: Path

    @property
    def keyring(self) -> Path:
        """The binary OpenPGP keyring for ``Signed-By``."""
        return self.folder / "keyring.gpg"

    @property
    def fingerprint(self) -> str:
        """The key's 40 hexadecimal digits."""
        return (self.folder / "fingerprint").read_text(encoding="ascii").strip()

    def sign(self, release: Path) -> None:
        """Write ``InRelease`` and ``Release.gpg`` beside the file ``Release``."""
        with tempfile.TemporaryDirectory(prefix="standin-") as home:
            _gpg(home, "--import", str(self.folder / "secret.gpg"))
            inline = str(release.with_name("InRelease"))
            detached = str(release.with_name("Release.gpg"))
            _gpg(home, "--clearsign", "--output", inline, str(release))
            _gpg(home, "--armor", "--detach-sign", "--output", detached, str(release))


def signing_key(context: Context, name: str) -> SigningKey:
    """Return the key called ``name``, made on first use; it is valid for ten years."""
    return SigningKey(context.stored(f"key-{name}", [], ("signing.py",), _make_key))


def _make_key(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="standin-") as home:
        _gpg(home, "--passphrase", "", "--quick-generate-key", _USER, "rsa3072", "sign", "10y")
        _gpg(home, "--output", str(folder / "keyring.gpg"), "--export")
        _gpg(home, "--output", str(folder / "secret.gpg"), "--export-secret-keys")
        listed = _gpg(home, "--list-keys", "--with-colons")
    fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line[:3] == "fpr")
    (folder / "fingerprint").write_text(fingerprint + "\n", encoding="ascii")
    (folder / "secret.gpg").chmod(0o600)


def _gpg(home: str, *arguments: str) -> str:
    """Run gpg with a home of its own, which must be short: sockets have short names."""
    command = ["gpg", "--batch", "--quiet", "--no-tty", "--pinentry-mode", "loopback", *arguments]
    environment = {**os.environ, "GNUPGHOME": home}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    kill = ["gpgconf", "--kill", "gpg-agent"]
    subprocess.run(kill, env=environment, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"gpg {' '.join(arguments)}: {done.stderr}")
    return done.stdout
