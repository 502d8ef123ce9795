"""The registry of the tests does what the tests of publishing take for granted."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
import requests
from own_registry import own_registry
from small_disk import small_disk

if TYPE_CHECKING:
    from pathlib import Path

    from own_registry import OwnRegistry

pytestmark = pytest.mark.nightly

LOGIN = ("robot", "a password")


def _upload(registry: OwnRegistry, size: int) -> int:
    """Upload bytes as a part of a blob; return the status, which tells whether there was room."""
    begun = requests.post(f"{registry.url}/v2/some/image/blobs/uploads/", timeout=10)
    place = begun.headers.get("Location")
    content = b"x" * size
    return (
        requests.patch(place, data=content, timeout=10).status_code if place else begun.status_code
    )


def test_it_can_be_stopped_and_started_on_its_port(tmp_path: Path) -> None:
    with own_registry(tmp_path) as registry:
        assert requests.get(f"{registry.url}/v2/", timeout=10).status_code == 200
        registry.stop()
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{registry.url}/v2/", timeout=10)
        registry.start()
        assert requests.get(f"{registry.url}/v2/", timeout=10).status_code == 200
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{registry.url}/v2/", timeout=10)


def test_tls_and_a_password_that_changes(tmp_path: Path) -> None:
    with own_registry(tmp_path, tls=True, login=LOGIN) as registry:
        url = f"{registry.url}/v2/"
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(url, timeout=10)
        asked = requests.Session()
        asked.trust_env, asked.verify = False, str(registry.ca)
        assert asked.get(url, timeout=10).status_code == 401
        assert asked.get(url, auth=LOGIN, timeout=10).status_code == 200
        registry.set_login(LOGIN[0], "another")
        assert asked.get(url, auth=LOGIN, timeout=10).status_code == 401
        assert asked.get(url, auth=(LOGIN[0], "another"), timeout=10).status_code == 200


@pytest.mark.parametrize("left", [0, 50_000])
def test_its_disk_can_be_full(tmp_path: Path, left: int) -> None:
    with (
        small_disk(tmp_path / "data", 4 << 20) as disk,
        own_registry(tmp_path, storage=disk.folder) as registry,
    ):
        assert _upload(registry, 100_000) == 202
        disk.fill(left)
        assert _upload(registry, 100_000) >= 500
        disk.empty()
        assert _upload(registry, 100_000) == 202


def test_it_outlives_the_thread_that_starts_it(tmp_path: Path) -> None:
    with own_registry(tmp_path) as registry:
        registry.stop()
        thread = threading.Thread(target=registry.start)
        thread.start()
        thread.join()
        time.sleep(0.2)  # a signal from the kernel would have come by now
        assert requests.get(f"{registry.url}/v2/", timeout=10).status_code == 200
