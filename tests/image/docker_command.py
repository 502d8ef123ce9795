"""The `docker` command, which testinfra's backend uses too: the engine is the same for both."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from limits import allowed

SECONDS = 60
HOST_SPEC = "docker://"


def docker(*arguments: str, stdin: bytes | None = None, seconds: int = SECONDS) -> str:
    """Return what a `docker` command printed; fails the test with its words where it fails."""
    __tracebackhide__ = True
    ran = subprocess.run(
        ["docker", *arguments],
        input=stdin,
        capture_output=True,
        timeout=allowed(seconds),
        check=False,
    )
    if ran.returncode != 0:
        words = ran.stderr.decode(errors="replace").strip()
        command = shlex.join(("docker", *arguments))
        pytest.fail(f"docker {arguments[0]}: {words}\n--- command\n{command}", pytrace=False)
    return ran.stdout.decode(errors="replace")


def container_of(hosts: str) -> str:
    """Return the container behind testinfra's `--hosts=docker://[USER@]CONTAINER`."""
    if not hosts.startswith(HOST_SPEC):
        pytest.fail(f"only a {HOST_SPEC} host has an image, not {hosts}", pytrace=False)
    return hosts.removeprefix(HOST_SPEC).rpartition("@")[2]
