"""Whether the index of a package repository is signed by the key that the images trust."""

import subprocess
from pathlib import Path
from typing import Literal

from imgbuild.files import work_folder

State = Literal["verified", "reachable", "unlocked", "not reachable from here", "differs"]
_SECONDS = 30


def judge_signature(content: bytes, keyring: Path) -> tuple[State, str]:
    """Return the state of an InRelease file and a short word on it, by asking gpgv."""
    if not content.startswith(b"-----BEGIN PGP SIGNED MESSAGE-----"):
        return "differs", "no signed index"
    with work_folder("signature") as folder:
        path = folder / "InRelease"
        path.write_bytes(content)
        command = ["gpgv", "--quiet", f"--keyring={keyring}", str(path)]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired):
            return "reachable", "its signature was not checked: gpgv is not installed"
    if result.returncode == 0:
        return "verified", "signature right"
    return "differs", f"a signature that gpgv refuses: {' '.join(result.stderr.split())[-80:]}"
