"""The labels of the image that a container runs, asked of the engine."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

SECONDS = 30
HOST_SPEC = "docker://"


def image_labels(hosts: str) -> dict[str, str]:
    """Return the labels of the image behind testinfra's `--hosts=docker://CONTAINER`.

    Not the container's own, into which whoever starts it can write. The engine is the one that
    testinfra's backend talks to, since both go through the `docker` command.
    """
    if not hosts.startswith(HOST_SPEC):
        pytest.fail(f"labels can be read only on a {HOST_SPEC} host, not {hosts}", pytrace=False)
    name = hosts.removeprefix(HOST_SPEC).rpartition("@")[2]
    image = inspect("container", name)["Image"]
    return inspect("image", image)["Config"]["Labels"] or {}


def inspect(kind: str, name: str) -> dict[str, Any]:
    """Return what the engine says of one container or image; fails the test where it cannot."""
    command = ["docker", kind, "inspect", name]
    result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if result.returncode != 0:
        pytest.fail(f"{' '.join(command)}: {result.stderr.strip()}", pytrace=False)
    document: dict[str, Any] = json.loads(result.stdout)[0]
    return document
