"""Suite `contents`: the image holds what it runs with, nothing that only built it, and no secret.

What is in no layer cannot be used by an intruder, need not be updated, and takes no space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from image_files import (
    File,
    cached,
    compilers,
    drivers,
    foreign_bytecode,
    histories,
    image_files,
    left_over,
    must_be_none,
    secrets,
)
from image_labels import image_config, image_history
from image_modes import setuid, world_writable
from image_secrets import in_files, in_texts, kinds_as_json

if TYPE_CHECKING:
    from container import Container
    from expectation import Expectation

SECONDS = 60
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


def test_no_bytecode_of_another_python(files: list[File], expect: Expectation) -> None:
    """The image's Python would never read it."""
    must_be_none(foreign_bytecode(files, expect.pins["python"]))


def test_nothing_is_left_over(files: list[File]) -> None:
    """The folders for temporary files are empty."""
    must_be_none(left_over(files))


def test_no_driver(files: list[File]) -> None:
    """No library of NVIDIA's driver, or stub of one, hides what a machine mounts."""
    must_be_none(drivers(files))


def test_no_secret(files: list[File]) -> None:
    """No login data, and no key of a host or user, which would be every user's key."""
    must_be_none(secrets(files))


def test_no_secret_by_another_name(container: Container) -> None:
    """No file holds a private key or a token, whatever it is called."""
    found = container.program("matching_files.py", kinds_as_json(), seconds=SECONDS)
    must_be_none(in_files(found.json))


def test_no_secret_in_the_configuration(pytestconfig: pytest.Config) -> None:
    """Nor do the environment, the labels and the commands that the image was made with."""
    hosts = pytestconfig.getoption("--hosts")
    config = image_config(hosts)
    labels = [f"{name}={value}" for name, value in (config["Labels"] or {}).items()]
    must_be_none(
        in_texts("environment", config["Env"] or [])
        + in_texts("labels", labels)
        + in_texts("history", image_history(hosts))
    )


def test_no_history(files: list[File]) -> None:
    """No shell, Python or editor remembers what was done while the image was made."""
    must_be_none(histories(files))


def test_nothing_is_writable_by_everybody(files: list[File]) -> None:
    """Folders for temporary files are, with the sticky bit; anything else one user could forge."""
    must_be_none(world_writable(files))


def test_no_unexpected_setuid_program(files: list[File]) -> None:
    """Only what the operating system needs runs with another's rights."""
    must_be_none(setuid(files))


def test_terms_of_intel_mpi_are_beside_it(container: Container, expect: Expectation) -> None:
    """They allow whoever repeats them to pass the library on."""
    if expect.mpi_flavour == "intelmpi":
        terms = 'head --lines=1 "$I_MPI_ROOT/LICENSE.txt"'
        said = container.run("sh", "-c", terms, seconds=10).output
        assert said.startswith("Intel Simplified Software License")


def test_an_upgrade_installs_nothing_new(container: Container) -> None:
    """An empty package that stands in for one of the archive's stays, and so brings nothing."""
    found = container.program("upgrade.py", seconds=60).json
    new = {kind: names for kind, names in found["new"].items() if names}
    assert not new, f"stand-ins: {found['standins']}; an upgrade would install {new}"


def test_no_source_or_key_of_nvidia(container: Container) -> None:
    """Nothing updates the pinned packages by itself, and no key is trusted for longer."""
    search = f"grep --recursive --files-with-matches --text -i nvidia {' '.join(APT)} 2>/dev/null"
    must_be_none(container.run("sh", "-c", f"{search} || true", seconds=30).output.split())
