"""The faults of the proxy are what they say, before a real registry."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from fault_proxy import FAULTS, FaultProxy, Traffic, fault_proxy
from own_registry import own_registry

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
    return requests.head(f"http://{proxy.host}/v2/{NAME}/blobs/{DIGEST}", timeout=10).ok


def test_requests_are_handed_on_and_counted(proxy: FaultProxy) -> None:
    assert put_blob(proxy) == 201
    assert has_blob(proxy)
    found = proxy.traffic[NAME].requests
    assert [one.method for one in found] == ["POST", "PATCH", "PUT", "HEAD"]
    assert [one.number for one in found] == [1, 2, 3, 4]
    answer = requests.head(f"http://{proxy.host}/v2/{NAME}/blobs/{DIGEST}", timeout=10)
    assert answer.headers["Content-Length"] == "3"


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault(proxy: FaultProxy, fault: str) -> None:
    """Only what the registry answered has happened."""
    proxy.traffic[NAME].fault = lambda request: fault if request.method == "PUT" else ""
    if fault in {"500", "429"}:
        assert put_blob(proxy) == int(fault)
    else:
        with pytest.raises(requests.ConnectionError):
            put_blob(proxy)
    assert has_blob(proxy) == (fault == "lost")
