"""The faults of the proxy before a registry happen, at the request that they are meant for."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import requests
from own_registry import own_registry
from registry_proxy import registry_proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from own_registry import OwnRegistry
    from registry_proxy import Asked, RegistryProxy

pytestmark = pytest.mark.nightly

BLOBS = "/v2/some/image/blobs"
EMPTY = b"{}"
OCI = "application/vnd.oci.image.manifest.v1+json"


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRegistry]:
    with own_registry(tmp_path_factory.mktemp("registry")) as own:
        yield own


@pytest.fixture
def proxy(registry: OwnRegistry) -> Iterator[RegistryProxy]:
    with registry_proxy(registry.port) as made:
        yield made


@pytest.fixture
def http() -> Iterator[requests.Session]:
    """Give a client that keeps its connection and tries nothing twice."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


def _put_blob(http: requests.Session, url: str, content: bytes, *, chunked: bool = False) -> str:
    begun = http.post(f"{url}{BLOBS}/uploads/", timeout=10)
    assert begun.headers["Location"].startswith(url)
    data = iter([content[:1000], content[1000:]]) if chunked else content
    sent = http.patch(begun.headers["Location"], data=data, timeout=10)
    digest = _digest(content)
    put = http.put(sent.headers["Location"], params={"digest": digest}, timeout=10)
    assert put.status_code == 201
    return digest


def _manifest(config: str) -> bytes:
    descriptor = {"mediaType": "application/json", "digest": config, "size": len(EMPTY)}
    document = {"schemaVersion": 2, "mediaType": OCI, "config": descriptor, "layers": []}
    return json.dumps(document).encode()


@pytest.mark.parametrize("chunked", [False, True])
def test_it_hands_on_what_is_said(
    proxy: RegistryProxy, registry: OwnRegistry, http: requests.Session, *, chunked: bool
) -> None:
    content = os.urandom(300_000)
    digest = _put_blob(http, proxy.url, content, chunked=chunked)
    for url in (proxy.url, registry.url):
        assert http.get(f"{url}{BLOBS}/{digest}", timeout=10).content == content
        head = http.head(f"{url}{BLOBS}/{digest}", timeout=10)
        assert head.headers["Content-Length"] == "300000"
    assert [asked.number for asked in proxy.asked] == [1, 2, 3, 4, 5]
    seen = [(asked.method, asked.status) for asked in proxy.asked]
    assert seen == [("POST", 202), ("PATCH", 202), ("PUT", 201), ("GET", 200), ("HEAD", 200)]


@pytest.mark.parametrize("status", [500, 429])
def test_an_answer_that_the_registry_never_gave(
    proxy: RegistryProxy, http: requests.Session, status: int
) -> None:
    proxy.inject(str(status), at=2, times=2)
    found = [http.get(f"{proxy.url}/v2/", timeout=10) for _ in range(4)]
    assert [one.status_code for one in found] == [200, status, status, 200]
    assert ("Retry-After" in found[1].headers) == (status == 429)
    assert [asked.status for asked in proxy.asked] == [200, None, None, 200]
    proxy.inject(str(status), at=1, times=None)
    assert {http.post(f"{proxy.url}{BLOBS}/uploads/").status_code for _ in range(5)} == {status}
    proxy.heal()
    assert http.get(f"{proxy.url}/v2/", timeout=10).status_code == 200


@pytest.mark.parametrize("fault", ["reset", "cut", "lost"])
@pytest.mark.parametrize("method", ["HEAD", "GET", "POST", "PUT"])
def test_a_reset(
    proxy: RegistryProxy, registry: OwnRegistry, http: requests.Session, fault: str, method: str
) -> None:
    """A reset is one for the client, and only after the answer has the registry done its part."""
    config = _put_blob(http, registry.url, EMPTY)
    tag = f"{fault}-{method}".lower()
    url = f"{proxy.url}/v2/some/image/manifests/{tag}"
    data = _manifest(config) if method == "PUT" else None
    url = url if data else f"{proxy.url}{BLOBS}/{config}" if method != "POST" else url
    url = f"{proxy.url}{BLOBS}/uploads/" if method == "POST" else url
    assert http.get(f"{proxy.url}/v2/", timeout=10).status_code == 200
    proxy.inject(fault, at=1)
    with pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        http.request(method, url, data=data, headers={"Content-Type": OCI}, timeout=10)
    (asked,) = proxy.asked
    assert asked.fault == fault
    # The cut of a request with a body comes before the answer, that of another within it.
    assert (asked.status is not None) == (fault == "lost" or (fault == "cut" and not data))
    if data:
        path = f"{registry.url}/v2/some/image/manifests/{tag}"
        there = http.head(path, headers={"Accept": OCI}, timeout=10).status_code
        assert there == (200 if fault == "lost" else 404)
    assert http.get(f"{proxy.url}/v2/", timeout=10).status_code == 200


def test_death(proxy: RegistryProxy, http: requests.Session) -> None:
    proxy.inject("die", at=3)
    assert [http.get(f"{proxy.url}/v2/", timeout=10).status_code for _ in range(2)] == [200, 200]
    for _ in range(3):
        with pytest.raises(requests.ConnectionError):
            http.get(f"{proxy.url}/v2/", timeout=10)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
    assert len(proxy.asked) == 3
    proxy.heal()
    assert http.get(f"{proxy.url}/v2/", timeout=10).status_code == 200


def test_a_registry_that_is_stopped_is_a_reset(
    proxy: RegistryProxy, registry: OwnRegistry, http: requests.Session
) -> None:
    registry.stop()
    with pytest.raises(requests.ConnectionError):
        http.get(f"{proxy.url}/v2/", timeout=10)
    registry.start()
    assert http.get(f"{proxy.url}/v2/", timeout=10).status_code == 200


def test_what_the_test_does_before_a_request_and_after_a_manifest(
    proxy: RegistryProxy, registry: OwnRegistry, http: requests.Session
) -> None:
    config = _put_blob(http, registry.url, EMPTY)
    before: list[Asked] = []
    after: list[tuple[Asked, int]] = []

    def there(asked: Asked) -> None:
        found = requests.head(f"{registry.url}{asked.path}", headers={"Accept": OCI}, timeout=10)
        after.append((asked, found.status_code))
        raise AssertionError(asked.manifest)

    proxy.before, proxy.after_manifest = before.append, there
    url = f"{proxy.url}/v2/some/image/manifests/"
    headers = {"Content-Type": OCI}
    good = http.put(f"{url}1.0", data=_manifest(config), headers=headers, timeout=10)
    wrong = http.put(f"{url}2.0", data=_manifest(_digest(b"")), headers=headers, timeout=10)
    assert (good.status_code, wrong.status_code) == (201, 400)
    assert [asked.manifest for asked in before] == ["1.0", "2.0"]
    assert [(asked.manifest, status) for asked, status in after] == [("1.0", 200)]
    assert [str(wrong) for wrong in proxy.broken] == ["1.0"]


def test_another_network_namespace(proxy: RegistryProxy) -> None:
    """Where an engine of a test's own is; there too it dies and comes back."""
    assert os.geteuid() == 0, "run these tests as root: they make a network namespace"
    connect = (
        "import socket, sys\n"
        "for _ in sys.stdin:\n"
        "    try:\n"
        f"        socket.create_connection(('127.0.0.1', {proxy.port}), timeout=10)\n"
        "        print('there', flush=True)\n"
        "    except OSError as refused:\n"
        "        print(type(refused).__name__, flush=True)\n"
    )
    inside = subprocess.Popen(
        ["unshare", "--net", sys.executable, "-c", connect],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def found() -> str:
        assert inside.stdin
        assert inside.stdout
        with suppress(BrokenPipeError):
            inside.stdin.write("\n")
            inside.stdin.flush()
        return inside.stdout.readline().strip()

    try:
        assert found() == "OSError"  # its loopback is down
        proxy.listen_in(inside.pid)
        assert found() == "there"
        proxy.die()
        assert found() == "ConnectionRefusedError"
        proxy.heal()
        assert found() == "there"
    finally:
        inside.kill()
        inside.wait()
        assert inside.stdin
        assert inside.stdout
        inside.stdin.close()
        inside.stdout.close()
