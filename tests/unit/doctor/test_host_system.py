"""The commands that install what is missing, on each system, for root and for a plain user."""

from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.doctor.host_system import (
    SETUP,
    as_root,
    engine_setup,
    install_command,
)

pytest_plugins = ("support.doctor_fixtures",)
Be = Callable[..., None]
DEBIAN = {"ID": "debian"}


@pytest.fixture
def be(monkeypatch: pytest.MonkeyPatch, program: Callable[..., Path]) -> Be:
    """Return how to be a system, as root or another user who has sudo."""
    program("sudo")

    def turn(release: dict[str, str], kernel: str = "Linux", user: int = 0) -> None:
        monkeypatch.setattr("platform.freedesktop_os_release", lambda: release)
        monkeypatch.setattr("platform.system", lambda: kernel)
        monkeypatch.setattr("os.geteuid", lambda: user)

    return turn


@pytest.mark.parametrize(
    ("release", "command", "sudo"),
    [
        (DEBIAN, "apt-get install -y git", "sudo "),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "apt-get install -y git", "sudo "),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, "install git with this system's ", ""),
        ({}, "install git with this system's package manager", ""),
    ],
)
def test_systems(be: Be, release: dict[str, str], command: str, sudo: str) -> None:
    be(release)
    assert install_command("git").startswith(command)
    be(release, user=1000)
    assert install_command("git").startswith(f"{sudo}{command}")


def test_a_user_without_sudo(be: Be, program: Callable[..., Path]) -> None:
    be(DEBIAN, user=1000)
    program("sudo").unlink()
    assert as_root("true") == "as root: true"


def test_an_engine_for_each_system(be: Be, tmp_path: Path) -> None:
    be(DEBIAN)
    packages = "docker.io docker-cli docker-buildx"
    assert engine_setup(tmp_path).startswith(f"apt-get install -y {packages}, then start ")
    be({"ID": "ubuntu"}, user=1000)
    packages = "docker.io docker-buildx"
    assert (
        engine_setup(tmp_path) == f"sudo apt-get install -y {packages}, then start docker.service"
    )
    be({}, user=1000)
    assert engine_setup(tmp_path).startswith("install Docker Engine 24 or later")
    be({}, kernel="Darwin", user=1000)
    assert engine_setup(tmp_path).startswith("brew install colima"), "brew refuses root"
    (tmp_path / SETUP).parent.mkdir(parents=True)
    (tmp_path / SETUP).touch()
    be({})
    assert SETUP not in engine_setup(tmp_path), "the script is for Debian and Ubuntu"
    be({"ID": "ubuntu"}, user=1000)
    assert engine_setup(tmp_path) == f"sudo {tmp_path}/{SETUP}"
