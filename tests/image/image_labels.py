"""The image that a container runs, and its configuration, asked of the engine."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from docker_command import container_of, docker


def image_labels(hosts: str) -> dict[str, str]:
    """Return the labels of the image behind testinfra's `--hosts=docker://CONTAINER`."""
    return image_config(hosts)["Labels"] or {}


@cache
def image_config(hosts: str) -> dict[str, Any]:
    """Return the image's configuration: labels, environment, entry point.

    Not the container's own, into which whoever starts it can write. The engine is the one that
    testinfra's backend talks to, since both go through the `docker` command.
    """
    config: dict[str, Any] = inspect("image", image_of(hosts))["Config"]
    return config


def image_history(hosts: str) -> list[str]:
    """Return the commands that the image was made with, as whoever pulls it can read them."""
    return docker_lines(
        "image", "history", "--no-trunc", "--format={{.CreatedBy}}", image_of(hosts)
    )


@cache
def image_of(hosts: str) -> str:
    """Return the id of the image that runs behind `--hosts`."""
    return str(inspect("container", container_of(hosts))["Image"])


def inspect(kind: str, name: str) -> dict[str, Any]:
    """Return what the engine says of one container or image; fails the test where it cannot."""
    document: dict[str, Any] = json.loads("\n".join(docker_lines(kind, "inspect", name)))[0]
    return document


def docker_lines(*arguments: str) -> list[str]:
    """Return the lines that a `docker` command printed; fails the test where it fails."""
    return docker(*arguments).splitlines()
