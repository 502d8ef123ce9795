"""The faults of the proxy are what they say, before a real registry; without one, tests fail."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from support.debian_program import unpacked
from support.fault_proxy import FAULTS, FaultProxy, Traffic, fault_proxy
from support.own_registry import own_registry

NAME = "team/app"
DIGEST = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"  # of "foo"


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[FaultProxy]:
    with own_registry(tmp_path) as registry, fault_proxy(registry.port) as running:
        running.traffic[NAME] = Traffic()
        yield running


def put_blob(proxy: FaultProxy) -> int:
    begun = requests.post(f"http://{proxy.host}/v2/{NAME}/blobs/uploads/", timeout=10)
    place = begun.headers["Location"]
    assert place.startswith(f"http://{proxy.host}/")
    chunks = (chunk for chunk in (b"f", b"oo"))  # sent in chunks, as an engine does
    patched = requests.patch(place, data=chunks, timeout=10)
    place = patched.headers["Location"]
    return requests.put(place, params={"digest": DIGEST}, timeout=10).status_code


def has_blob(proxy: FaultProxy) -> bool:
    answer = requests.head(f"http://{proxy.host}/v2/{NAME}/blobs/{DIGEST}", timeout=10)
    return answer.ok and answer.headers["Content-Length"] == "3"


@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_each_fault(proxy: FaultProxy, fault: str) -> None:
    """Requests are counted, and only what the registry answered has happened."""
    proxy.traffic[NAME].fault = lambda request: fault if request.method == "PUT" else ""
    if fault in {"reset", "lost"}:
        with pytest.raises(requests.ConnectionError):
            put_blob(proxy)
    else:
        assert put_blob(proxy) == int(fault or 201)
    assert has_blob(proxy) == (fault in {"", "lost"})
    found = [(one.number, one.method) for one in proxy.traffic[NAME].requests]
    assert found == [(1, "POST"), (2, "PATCH"), (3, "PUT"), (4, "HEAD")]


def test_without_docker_registry_tests_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match="apt-get install docker-registry"):
        unpacked.__wrapped__("docker-registry")
