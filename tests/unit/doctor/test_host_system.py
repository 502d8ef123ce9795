"""The commands that install what is missing, on each system, for root and for a plain user."""

from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.doctor.host_system import (
    SETUP,
    WITHOUT_ROOT,
    as_root,
    engine_setup,
    install_command,
    system_name,
)

pytest_plugins = ("doctor_fixtures",)
Be = Callable[..., None]
DEBIAN = {"ID": "debian"}


@pytest.fixture
def be(monkeypatch: pytest.MonkeyPatch, program: Callable[..., Path]) -> Be:
    """Return how to be a system, as root or another user who has sudo."""
    program("sudo")

    def turn(release: dict[str, str], kernel: str = "Linux", user: int = 0) -> None:
        monkeypatch.setattr("platform.freedesktop_os_release", lambda: release)
        monkeypatch.setattr("platform.system", lambda: kernel)
        monkeypatch.setattr("platform.release", lambda: "6.18-generic")
        monkeypatch.setattr("os.geteuid", lambda: user)

    return turn


@pytest.mark.parametrize(
    ("release", "name", "command"),
    [
        (DEBIAN, "debian", "apt-get install -y git"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "ubuntu", "apt-get install -y git"),
        ({"ID": "fedora"}, "fedora", "dnf install -y git"),
        ({"ID": "manjaro", "ID_LIKE": "arch"}, "arch", "pacman -S --needed git"),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, "", "install git with this system's "),
        ({}, "", "install git with this system's package manager"),
    ],
)
def test_systems(be: Be, release: dict[str, str], name: str, command: str) -> None:
    be(release)
    assert system_name() == name
    assert install_command("git").startswith(command)
    be(release, user=1000)
    assert install_command("git").startswith(f"sudo {command}" if name else command)


def test_a_user_without_sudo(be: Be, program: Callable[..., Path]) -> None:
    be(DEBIAN, user=1000)
    program("sudo").unlink()
    assert as_root("true") == "as root: true"


@pytest.mark.parametrize(
    ("release", "kernel", "user", "said"),
    [
        (DEBIAN, "Linux", 0, "apt-get install -y docker.io docker-cli docker-buildx, then start"),
        ({"ID": "arch"}, "Linux", 1000, "sudo pacman -S --needed docker docker-buildx, then"),
        ({}, "Linux", 1000, "install Docker Engine 24 or later"),
        ({}, "Darwin", 1000, "brew install colima docker docker-buildx && colima start"),
    ],
    ids=["debian", "arch", "unknown", "macos"],
)
def test_an_engine_for_each_system(  # noqa: PLR0913, PLR0917 - what a system is
    be: Be, tmp_path: Path, release: dict[str, str], kernel: str, user: int, said: str
) -> None:
    be(release, kernel, user)
    assert engine_setup(tmp_path).startswith(said)
    assert (WITHOUT_ROOT in engine_setup(tmp_path)) is (user != 0 and kernel == "Linux")


def test_the_script_of_a_checkout_is_for_debian_and_ubuntu(be: Be, tmp_path: Path) -> None:
    (tmp_path / SETUP).parent.mkdir(parents=True)
    (tmp_path / SETUP).touch()
    be({"ID": "fedora"})
    assert "moby-engine" in engine_setup(tmp_path)
    be({"ID": "ubuntu"}, user=1000)
    assert engine_setup(tmp_path) == f"sudo {tmp_path}/{SETUP}\n{WITHOUT_ROOT}"


def test_windows(be: Be, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    be({"ID": "ubuntu"})
    assert "WSL" not in engine_setup(tmp_path)
    monkeypatch.setattr("platform.release", lambda: "5.15.153.1-microsoft-standard-WSL2")
    assert "Settings, Resources, WSL integration" in engine_setup(tmp_path)
