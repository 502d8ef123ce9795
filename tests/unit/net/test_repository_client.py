"""The client against a registry in this process: its requests, and the faults it survives."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.core.parallel import in_parallel
from imgbuild.net import repository_client
from imgbuild.net.repository import (
    EMPTY_TYPE,
    OCI_MANIFEST,
    DamagedError,
    Manifest,
    descriptor,
    digest_of,
)
from imgbuild.net.repository_client import RegistryClient
from support.registry_server import ATTEMPTS, Fault, RegistryServer, opened, registry_server

ABSENT = "sha256:" + "0" * 64
EMPTY = digest_of(b"{}")
KIND = "application/vnd.imgbuild.test.v1+json"


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as started:
        yield started


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def registry(server: RegistryServer, said: list[str]) -> Iterator[RegistryClient]:
    made = opened(server.name, log=said.append)
    yield made
    made.close()


def manifest_of(registry: RegistryClient) -> bytes:
    entry = {"mediaType": "x/y", "digest": registry.put_blob(b"{}"), "size": 2}
    return json.dumps({"schemaVersion": 2, "config": entry, "layers": []}).encode()


def test_what_is_written_is_read(registry: RegistryClient, server: RegistryServer) -> None:
    assert (registry.head("1.0"), registry.manifest("1.0")) == (None, None)
    server.fail("GET /tags", Fault(404))
    assert registry.tags() == registry.tags() == (), "it does not exist yet, then it is empty"
    content = manifest_of(registry)
    digest = registry.put_manifest("1.0", content, OCI_MANIFEST)
    assert registry.head("1.0") == digest == digest_of(content)
    assert server.lines()[-1] == "HEAD /manifests/1.0", "nothing else is read"
    assert registry.manifest("1.0") == Manifest(digest, OCI_MANIFEST, content)
    assert registry.blob(EMPTY) == b"{}"
    server.tells_digests = False
    assert registry.head("1.0") == digest
    server.asked.clear()
    registry.put_blob(b"{}")
    assert server.lines() == [f"HEAD /blobs/{EMPTY}"]


def test_an_upload_goes_where_it_is_told(registry: RegistryClient, server: RegistryServer) -> None:
    for server.absolute, content in ((False, b"record"), (True, b"another")):
        assert registry.put_blob(content) == digest_of(content)
        assert server.store.blobs[digest_of(content)] == content
        assert "_state=s&digest=sha256%3A" in server.asked[-1].path
    server.fail("POST", Fault(202, {"Location": "/v2/team/app/blobs/uploads/7"}))
    registry.put_blob(b"other")
    assert server.asked[-1].path.startswith("/v2/team/app/blobs/uploads/7?digest=sha256%3A")


def test_tags_come_page_by_page_and_the_pages_end(
    registry: RegistryClient, server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that was read before is refused, and so are new pages for ever."""
    tags = tuple(f"1.{number}" for number in range(7))
    for tag in tags:
        server.store.add_image(tag)
    for server.store.page in (1, 5, 7):
        assert registry.tags() == tags

    def page(following: int) -> Fault:
        link = f'</v2/team/app/tags/list?page={following}>; rel="next"'
        return Fault(200, {"Link": link}, json.dumps({"tags": [f"{following}.0"]}).encode())

    monkeypatch.setattr(repository_client, "MOST_PAGES", 4)
    for pages, most in (((2, 3, 2, 3), 3), (range(9), 4)):
        server.asked.clear()
        server.faults.clear()
        server.fail("GET /tags", *map(page, pages))
        with pytest.raises(CheckFailedError, match="list of tags does not end"):
            registry.tags()
        assert len(server.lines()) == most


def test_every_request_survives_a_fault_that_passes(
    registry: RegistryClient, server: RegistryServer, said: list[str]
) -> None:
    content = manifest_of(registry)
    digest = registry.put_manifest("1.0", content, OCI_MANIFEST)
    works: dict[str, tuple[Callable[[], object], object]] = {
        "HEAD /manifests": (lambda: registry.head("1.0"), digest),
        "GET /manifests": (lambda: registry.manifest("1.0"), server.store.manifests[digest]),
        "PUT": (lambda: registry.put_manifest("2", content, KIND), digest),
        "POST": (lambda: registry.put_blob(b"x"), digest_of(b"x")),
        "GET /blobs": (lambda: registry.blob(EMPTY), b"{}"),
    }
    for line, (work, expected) in works.items():
        said.clear()
        server.fail(line, Fault(429, {"Retry-After": "0"}), Fault(reset=True))
        assert work() == expected
        assert len(said) == 2


@pytest.mark.parametrize("tag", ["../../other", "1.0\n2.0", "\ud800", "", "a" * 129, 1, ["1.0"]])
def test_tags_that_no_registry_has(
    registry: RegistryClient, server: RegistryServer, tag: object
) -> None:
    """They would reach addresses and the terminal."""
    server.fail("GET /tags", Fault(200, {}, json.dumps({"tags": ["1.0", tag]}).encode()))
    with pytest.raises(CheckFailedError, match="not a list of tags"):
        registry.tags()


def test_tags_that_are_too_many_are_not_kept(
    registry: RegistryClient, server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository_client, "MOST_TAGS", 2)
    server.store.page = 1
    for number in range(5):
        server.store.add_image(f"1.{number}")
    with pytest.raises(CheckFailedError, match="list of tags does not end"):
        registry.tags()
    assert len(server.lines()) == 3


@pytest.mark.parametrize("address", ["https://[x", "//host:99999/x", "http://host:x/"])
def test_an_address_that_cannot_be_is_refused(
    registry: RegistryClient, server: RegistryServer, address: str
) -> None:
    page = json.dumps({"tags": ["1.0"]}).encode()
    bearer = {"WWW-Authenticate": f'Bearer realm="{address}"'}
    works: list[tuple[str, Fault, Callable[[], object]]] = [
        ("GET /tags", Fault(200, {"Link": f'<{address}>; rel="next"'}, page), registry.tags),
        ("POST /blobs", Fault(202, {"Location": address}), lambda: registry.put_blob(b"x")),
        ("GET /tags", Fault(401, bearer), registry.tags),
    ]
    for line, fault, work in works:
        server.faults.clear()
        server.fail(line, fault)
        with pytest.raises(MachineError, match="invalid address"):
            work()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault(500), "500 .3 tries"),
        (Fault(429, {}, b'{"errors": [{"code": "TOO", "message": "slow"}]}'), "TOO: slow .3 tries"),
        (
            Fault(500, {}, b'{"errors": [{"code": "UNKNOWN", "detail": {"Op": "x", "Err": 28}}]}'),
            "no space left on device .3 tries",
        ),
        (Fault(429, {"Retry-After": "3600"}), "429 .1 try.*3600 s"),
        (Fault(cut=True), "cut off"),
    ],
    ids=["500", "429", "disk", "wait", "cut"],
)
def test_a_fault_that_stays_is_the_machines(
    registry: RegistryClient, server: RegistryServer, fault: Fault, expected: str
) -> None:
    server.fail("GET /manifests", *[fault] * ATTEMPTS)
    with pytest.raises(MachineError, match=f"{server.name}: .*1.0.*{expected}"):
        registry.manifest("1.0")


@pytest.mark.usefixtures("no_collection")
def test_an_answer_that_cannot_be_used(registry: RegistryClient, server: RegistryServer) -> None:
    server.fail("GET /manifests/1.0", Fault(200, {}, b"x" * ((1 << 24) + 1)))
    with pytest.raises(MachineError, match="sent more than 16 MiB"):
        registry.manifest("1.0")
    deep = b"[" * 100_000
    for body in (b"<html>", b"{}", b"[]", b'{"tags": 1}', deep):
        server.fail("GET /tags", Fault(200, {}, body))
        with pytest.raises(CheckFailedError, match="not a list of tags"):
            registry.tags()
    server.fail("GET /tags", Fault(403, {}, deep))
    with pytest.raises(CheckFailedError, match="it answered 403"):
        registry.tags()
    with pytest.raises(CheckFailedError, match=f"has no blob {ABSENT}"):
        registry.blob(ABSENT)
    server.fail("GET /manifests/doc", Fault(404))
    with pytest.raises(MachineError, match="doc was written"):
        registry.put_artifact("doc", KIND, b"{}")


@pytest.mark.parametrize(
    ("status", "hint"),
    [(400, ""), (403, "docker login"), (404, "does not create it"), (405, "mirror"), (413, "A pr")],
)
def test_what_is_refused_is_not_asked_again_and_says_what_to_do(
    registry: RegistryClient, server: RegistryServer, status: int, hint: str
) -> None:
    content = manifest_of(registry)
    for said, told in ((b'{"code": "NO"}', ": NO"), (b"{}", "")):
        server.asked.clear()
        server.fail("PUT /manifests", Fault(status, {}, b'{"errors": [%s]}' % said))
        expected = rf"writing 1.0 was refused: it answered {status}{told}\..*{hint}"
        with pytest.raises(CheckFailedError, match=expected):
            registry.put_manifest("1.0", content, OCI_MANIFEST)
        assert server.lines() == ["PUT /manifests/1.0"]
    assert registry.head("1.0") is None


def test_what_another_client_or_a_restart_disturbs_is_written_again(
    registry: RegistryClient, server: RegistryServer
) -> None:
    """A blob that another writes at the same moment; an upload that the registry forgot."""
    content = manifest_of(registry)
    busy = Fault(400, {}, b'{"errors": [{"code": "DIGEST_INVALID", "message": "did not match"}]}')
    server.fail("PUT /manifests", *[busy] * (ATTEMPTS - 1))
    assert registry.put_manifest("1.0", content, OCI_MANIFEST) == registry.head("1.0")
    server.fail("PUT /manifests", *[busy] * ATTEMPTS)
    with pytest.raises(MachineError, match="DIGEST_INVALID: did not match"):
        registry.put_manifest("2.0", content, OCI_MANIFEST)
    server.fail("PUT /manifests", replace(busy, status=403))
    with pytest.raises(CheckFailedError, match="refused: it answered 403: DIGEST_INVALID"):
        registry.put_manifest("2.0", content, OCI_MANIFEST)
    server.asked.clear()
    server.fail("PUT /blobs", Fault(404, {}, b'{"errors": [{"code": "BLOB_UPLOAD_UNKNOWN"}]}'))
    registry.put_blob(b"record")
    assert server.lines().count("POST /blobs/uploads/") == 2


@pytest.mark.parametrize("told", ["right", "", "other"])
def test_wrong_content_is_not_taken(
    registry: RegistryClient, server: RegistryServer, told: str
) -> None:
    """Whatever the registry says of it: a digest means its content."""
    content = manifest_of(registry)
    digest, wrong = registry.put_manifest("1.0", content, OCI_MANIFEST), content + b" "
    digests = {"right": digest, "other": digest_of(wrong)}
    headers = {"Docker-Content-Digest": digests[told]} if told else {}
    works: list[Callable[[], object]] = [
        lambda: registry.manifest(digest),
        lambda: registry.blob(EMPTY),
        lambda: registry.put_manifest("2.0", content, OCI_MANIFEST),
    ]
    if told == "right":
        works.append(lambda: registry.manifest("1.0"))
    for work in works:
        server.faults.clear()
        server.fail("GET", Fault(200, headers, wrong))
        server.fail("PUT", Fault(201, {"Docker-Content-Digest": ABSENT}))
        with pytest.raises(CheckFailedError, match="sha256:"):
            work()


def test_a_blob_may_be_larger_than_other_answers(
    registry: RegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"x" * ((1 << 24) + 1)
    digest = registry.put_blob(content)
    assert registry.blob(digest) == content
    monkeypatch.setattr("imgbuild.net.repository_client.LARGEST_BLOB", 1 << 20)
    with pytest.raises(MachineError, match="sent more than 1 MiB"):
        registry.blob(digest)


def test_connections_are_kept(registry: RegistryClient, server: RegistryServer) -> None:
    server.store.add_image("1.0")
    assert len({*in_parallel(registry.head, ["1.0"] * 60, 4)}) == 1
    assert len(server.connections) <= 4 + 2  # and those that ask which scheme is spoken
    assert [one.path for one in server.asked].count("/v2/") == 1


def test_faults_while_the_scheme_is_asked_for(server: RegistryServer) -> None:
    server.fail("GET /v2/", Fault(reset=True), Fault(cut=True))
    assert opened(server.name).tags() == ()
    server.fail("GET /v2/", *[Fault(400)] * ATTEMPTS)
    with pytest.raises(MachineError, match="TLS failed"):
        opened(server.name).tags()


def test_an_artifact_is_one_file_about_an_image(
    registry: RegistryClient, server: RegistryServer
) -> None:
    image = server.store.add_image("1.0")
    digest = registry.put_artifact("doc", KIND, b'{"a": 1}', image)
    assert registry.read_artifact("doc", KIND) == ({"a": 1}, image.digest)
    manifest = registry.manifest("doc")
    assert manifest
    assert (manifest.media_type, manifest.digest) == (OCI_MANIFEST, digest)
    document = manifest.document()
    assert (document["artifactType"], document["config"]["mediaType"]) == (KIND, EMPTY_TYPE)
    assert document["layers"] == [descriptor(KIND, b'{"a": 1}')]
    assert document["subject"] == descriptor(image.media_type, image.content)
    assert registry.put_artifact("again", KIND, b'{"a": 1}', image) == digest
    assert registry.read_artifact("other", KIND) is None


def test_what_is_not_the_artifact(registry: RegistryClient, server: RegistryServer) -> None:
    server.store.add_image("image")
    registry.put_artifact("text", KIND, b"[1]")
    entry = {"mediaType": KIND, "digest": EMPTY, "size": 2}
    for layers in (0, 2):
        content = {"artifactType": KIND, "config": entry, "layers": [entry] * layers}
        registry.put_manifest(f"of-{layers}", json.dumps(content).encode(), OCI_MANIFEST)
    for tag in ("image", "of-0", "of-2"):
        with pytest.raises(DamagedError, match=f"team/app:{tag}"):
            registry.read_artifact(tag, KIND)
    with pytest.raises(DamagedError, match="team/app:text is not a JSON object"):
        registry.read_artifact("text", KIND)
