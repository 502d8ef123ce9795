"""A program of Debian, unpacked from its package and not installed; of a newer one, too."""

import atexit
import os
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

_KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"


@cache
def unpacked(package: str, suite: str = "") -> Path:
    """Return the tree of this machine's package, or of a suite's; without apt tests fail."""
    kept = TemporaryDirectory(prefix=f"imgbuild-{package}-")
    atexit.register(kept.cleanup)
    folder = Path(kept.name)
    folder.chmod(0o755)  # apt-get fetches as another user
    try:
        apt = ["apt-get", "-qq"]
        if suite:
            apt += _archive(folder, suite)
            subprocess.run([*apt, "update"], cwd=folder, check=True, capture_output=True)
        subprocess.run([*apt, "download", package], cwd=folder, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr.decode()[-500:] if isinstance(error, subprocess.SubprocessError) else ""
        need = f"apt-get install {package}{suite and f' of {suite}'}, which tests need"
        pytest.fail(f"{need}: {error} {said}", pytrace=False)
    (archive,) = folder.glob(f"{package}_*.deb")
    subprocess.run(["dpkg-deb", "-x", archive, folder / "root"], check=True)
    return folder / "root"


def _archive(folder: Path, suite: str) -> list[str]:
    """Return the options that let apt know a suite of the machine's mirror, and nothing else."""
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True)
    form = ("indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main")
    found = subprocess.run(["apt-get", *form], capture_output=True, text=True, check=False).stdout
    mirrors = [line for line in found.split() if line.rstrip("/").endswith("/debian")]
    if not mirrors:
        pytest.fail("apt has no source of Debian, which tests take programs from", pytrace=False)
    line = f"deb [signed-by={_KEY} check-valid-until=no] {mirrors[0]} {suite} main\n"
    (folder / "all.list").write_text(line, encoding="ascii")
    options = {
        "Dir::Etc::SourceList": folder / "all.list",
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder,
        "Acquire::Languages": "none",
    }
    return [f"-o{name}={value}" for name, value in options.items()]


def debian_program(package: str, suite: str) -> Path:
    return unpacked(package, suite) / "usr" / "bin"


def with_program(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """Return the environment with the programs of a folder before all others."""
    return {**environment, "PATH": f"{folder}:{environment.get('PATH', os.defpath)}"}
