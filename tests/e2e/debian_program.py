"""A program of a newer Debian than this machine's, unpacked from its package, not installed."""

import atexit
import os
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

_KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"


@cache
def debian_program(package: str, suite: str) -> Path:
    """Return the folder of the package's programs; without apt or the archive tests fail."""
    kept = TemporaryDirectory(prefix=f"imgbuild-{package}-")
    atexit.register(kept.cleanup)
    folder = Path(kept.name)
    folder.chmod(0o755)  # apt-get fetches as another user
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
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    try:
        for words in (["update"], ["download", package]):
            subprocess.run([*apt, *words], cwd=folder, check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode()[-500:]
        pytest.fail(f"{package} of Debian's {suite}, which tests need: {said}", pytrace=False)
    (archive,) = folder.glob(f"{package}_*.deb")
    subprocess.run(["dpkg", "-x", archive, folder / "root"], check=True)
    return folder / "root" / "usr" / "bin"


def with_program(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """Return the environment with the programs of a folder before all others."""
    return {**environment, "PATH": f"{folder}:{environment.get('PATH', os.defpath)}"}
