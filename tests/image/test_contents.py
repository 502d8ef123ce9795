"""Suite `contents`: the image holds what it runs with, and nothing that only built it.

What is in no layer cannot be used by an intruder, need not be updated, and takes no space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from image_files import File, cached, compilers, drivers, image_files, must_be_none, secrets
from image_labels import image_config

if TYPE_CHECKING:
    from container import Container

INIT = ["/opt/python/bin/dumb-init", "--"]
#: Where apt keeps its sources, their keys and its login data.
APT = (
    *("/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/apt/auth.conf"),
    *("/etc/apt/auth.conf.d", "/etc/apt/trusted.gpg", "/etc/apt/trusted.gpg.d"),
    *("/etc/apt/keyrings", "/usr/share/keyrings"),
)


@pytest.fixture(scope="module")
def files(pytestconfig: pytest.Config) -> list[File]:
    """Return all files of the image, listed once."""
    return image_files(pytestconfig.getoption("--hosts"))


def test_the_listing_is_whole(files: list[File]) -> None:
    """The interpreter is in it, so that nothing found in it means nothing there."""
    assert "/opt/python/bin/python3" in {file.path for file in files}


def test_no_compiler(files: list[File]) -> None:
    """Compilers stay in the builder stages."""
    must_be_none(compilers(files))


def test_no_package_cache(files: list[File]) -> None:
    """No archive, index or cache of apt, pip, uv or conda is left."""
    must_be_none(cached(files))


def test_no_driver(files: list[File]) -> None:
    """No library of NVIDIA's driver, or stub of one, hides what a machine mounts."""
    must_be_none(drivers(files))


def test_no_secret(files: list[File]) -> None:
    """No login data, and no host key, which would be every user's key."""
    must_be_none(secrets(files))


def test_no_source_or_key_of_nvidia(container: Container) -> None:
    """Nothing updates the pinned packages by itself, and no key is trusted for longer."""
    search = f"grep --recursive --files-with-matches --text -i nvidia {' '.join(APT)} 2>/dev/null"
    must_be_none(container.run("sh", "-c", f"{search} || true", seconds=30).output.split())


def test_entry_point(pytestconfig: pytest.Config) -> None:
    """The entry point is an init, which forwards signals and collects orphans."""
    found = image_config(pytestconfig.getoption("--hosts")).get("Entrypoint") or []
    assert found == INIT, f"the entry point is {found}, not {INIT}"
