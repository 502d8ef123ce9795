"""Packages for one test, beside those of the image: installed here, copied into the container.

The image stays as it is. Whoever runs the test needs the Python package index, the image does not.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from docker_command import docker
from uv import find_uv_bin

if TYPE_CHECKING:
    from container import Container

LOCKS = Path(__file__).parent / "locks"
#: What the wheels are for, by the image's platform.
PLATFORMS = {"linux/amd64": "x86_64-manylinux2014", "linux/arm64": "aarch64-manylinux2014"}
SECONDS = 300


def install(lock: str, target: Path, python: str, platform: str) -> None:
    """Install the packages of `locks/LOCK.txt`, every file by its hash, for Python `python`."""
    command = [find_uv_bin(), "pip", "install", "--quiet", "--target", str(target)]
    command += ["--python-version", python, "--python-platform", PLATFORMS[platform]]
    command += ["--only-binary", ":all:", "--no-deps", "--require-hashes", "--link-mode", "copy"]
    command += ["--requirement", str(LOCKS / f"{lock}.txt")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if ran.returncode != 0:
        pytest.fail(f"uv cannot install {lock}: {ran.stderr.strip()}", pytrace=False)


def copy_into(container: Container, container_id: str, source: Path) -> str:
    """Copy a folder into a fresh folder of the container, and return where it is there."""
    target = container.fresh_folder()
    docker("cp", f"{source}/.", f"{container_id}:{target}", seconds=SECONDS)
    return target
