"""Suite `packages`: real packages that require TensorFlow leave the image's own as it is.

They come from the index, into one container for all. What pip refuses is no fault: the image keeps
its versions. Whatever it says, TensorFlow's files stay as they are, and `pip check` stays clean.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from docker_command import docker

if TYPE_CHECKING:
    from container import Container
    from expectation import Expectation
    from lab import Lab

#: Not among the suites of a build: it is run where it is asked for.
NEEDS = "the Python package index"

SECONDS = 600
#: Each requires TensorFlow under one of its names, or is it.
ASKING = (
    "tensorflow",
    "tensorflow-hub",
    "tensorflow-datasets",
    "tf-keras",
    "tensorflow-probability",
)
CA = "/tmp/ca.pem"  # noqa: S108 - of the container
#: Networks that re-sign TLS have their authority among those of the system.
AUTHORITIES = ("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
FILES = (
    "cd /opt/python/lib/python*/site-packages && find tensorflow tensorflow_core -type f"
    " ! -name '*.pyc' -exec sha256sum {} + 2>/dev/null | sort | sha256sum"
)


@pytest.fixture(scope="module")
def connected(lab: Lab) -> Container:
    """Return a container that reaches the index."""
    container = lab.start("packages", "--network=bridge")
    variable, usual = AUTHORITIES
    if (bundle := Path(os.environ.get(variable) or usual)).is_file():
        docker("cp", str(bundle), f"{lab.id_of('packages')}:{CA}")
    return container


@pytest.fixture(scope="module")
def files(connected: Container) -> str:
    """Return the digest of all of TensorFlow's files, before anything is installed."""
    return connected.run("sh", "-c", FILES, seconds=SECONDS).output


@pytest.mark.parametrize("package", ASKING)
def test_tensorflow_stays(
    connected: Container, files: str, package: str, expect: Expectation
) -> None:
    """It has the same files afterwards, and no package misses another."""
    pip = ("python", "-m", "pip", "--disable-pip-version-check")
    trust = (
        ("env", f"PIP_CERT={CA}") if not connected.run("test", "-e", CA, seconds=30).failed else ()
    )
    ran = connected.run(*trust, *pip, "install", package, seconds=SECONDS)
    assert "Could not fetch" not in ran.stderr, ran.stderr
    assert not ran.failed or package != "tensorflow", ran.stderr
    assert connected.run("sh", "-c", FILES, seconds=SECONDS).output == files, ran.stdout
    check = connected.run(*pip, "check", seconds=SECONDS)
    assert not check.failed, check.stdout
    version = "import tensorflow; print(tensorflow.__version__)"
    assert (
        connected.run("python", "-c", version, seconds=SECONDS).output.strip() == expect.tensorflow
    )
