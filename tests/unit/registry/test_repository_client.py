"""The client against a registry in this process: its requests, and the faults it survives."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from registry_client import ATTEMPTS, opened
from registry_server import Fault, RegistryServer, registry_server

from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.http import RetryPolicy
from imgbuild.parallel import in_parallel
from imgbuild.registry import repository_client
from imgbuild.registry.repository import EMPTY_TYPE, OCI_MANIFEST, DamagedError, digest_of
from imgbuild.registry.repository_client import RegistryClient

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
    made = opened(server.name, say=said.append)
    yield made
    made.close()


def manifest_of(registry: RegistryClient) -> bytes:
    entry = {"mediaType": "x/y", "digest": registry.put_blob(b"{}"), "size": 2}
    return json.dumps({"schemaVersion": 2, "config": entry, "layers": []}).encode()


def test_an_empty_repository(registry: RegistryClient, server: RegistryServer) -> None:
    assert registry.tags() == ()
    assert registry.head("1.0") is None
    assert registry.manifest("1.0") is None
    server.fail("GET /tags", Fault(404))
    assert registry.tags() == ()


def test_what_is_written_is_read(registry: RegistryClient, server: RegistryServer) -> None:
    content = manifest_of(registry)
    digest = registry.put_manifest("1.0", content, OCI_MANIFEST)
    assert registry.head("1.0") == digest == digest_of(content)
    assert server.lines()[-1] == "HEAD /manifests/1.0", "nothing else is read"
    found = registry.manifest("1.0")
    assert found
    assert (found.digest, found.media_type, found.content) == (digest, OCI_MANIFEST, content)
    assert registry.blob(EMPTY) == b"{}"
    assert registry.tags() == ("1.0",)
    server.tells_digests = False
    assert registry.head("1.0") == digest
    server.asked.clear()
    registry.put_blob(b"{}")
    assert server.lines() == [f"HEAD /blobs/{EMPTY}"]


@pytest.mark.parametrize("absolute", [False, True])
def test_an_upload_goes_where_it_is_told(
    registry: RegistryClient, server: RegistryServer, absolute: bool
) -> None:
    server.absolute = absolute
    assert registry.put_blob(b"record") == digest_of(b"record")
    assert server.store.blobs[digest_of(b"record")] == b"record"
    assert "_state=s&digest=sha256%3A" in server.asked[-1].path
    server.fail("POST", Fault(202, {"Location": "/v2/team/app/blobs/uploads/7"}))
    registry.put_blob(b"other")
    assert server.asked[-1].path.startswith("/v2/team/app/blobs/uploads/7?digest=sha256%3A")


@pytest.mark.parametrize("page", [1, 5, 7])
def test_tags_come_page_by_page(
    registry: RegistryClient, server: RegistryServer, page: int
) -> None:
    tags = tuple(f"1.{number}" for number in range(7))
    for tag in tags:
        server.store.add_image(tag)
    server.page = page
    assert registry.tags() == tags


def test_a_list_of_tags_ends(
    registry: RegistryClient, server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that was read before is refused, and so are new pages for ever."""

    def page(following: int) -> Fault:
        link = f'</v2/team/app/tags/list?page={following}>; rel="next"'
        return Fault(200, {"Link": link}, json.dumps({"tags": [f"{following}.0"]}).encode())

    monkeypatch.setattr(repository_client, "MOST_PAGES", 4)
    server.fail("GET /tags", *map(page, (2, 3, 2, 3)))
    with pytest.raises(CheckFailedError, match="its tags have no end"):
        registry.tags()
    assert len(server.lines()) == 3
    server.faults.clear()
    server.fail("GET /tags", *map(page, range(9)))
    with pytest.raises(CheckFailedError, match="its tags have no end"):
        registry.tags()


@pytest.mark.usefixtures("no_collection")
def test_answers_nested_without_end(registry: RegistryClient, server: RegistryServer) -> None:
    deep = b"[" * 100_000
    server.fail("GET /tags", Fault(200, {}, deep), Fault(403, {}, deep))
    with pytest.raises(CheckFailedError, match="not a list of tags"):
        registry.tags()
    with pytest.raises(CheckFailedError, match="it answered 403"):
        registry.tags()


@pytest.mark.parametrize(
    "fault",
    [
        Fault(500),
        Fault(503, {"Retry-After": "0"}),
        Fault(429, {"Retry-After": "0"}),
        Fault(reset=True),
        Fault(cut=True),
    ],
    ids=["500", "503", "429", "reset", "cut"],
)
@pytest.mark.parametrize("line", ["HEAD /manifests", "GET /manifests", "PUT", "POST", "GET /blobs"])
def test_a_fault_that_passes(
    registry: RegistryClient, server: RegistryServer, said: list[str], fault: Fault, line: str
) -> None:
    content = manifest_of(registry)
    digest = registry.put_manifest("1.0", content, OCI_MANIFEST)
    if fault.cut and not line.startswith("GET"):
        fault = Fault(reset=True)  # no body is awaited
    server.fail(line, *[fault] * (ATTEMPTS - 1))
    works: dict[str, tuple[Callable[[], object], object]] = {
        "HEAD /manifests": (lambda: registry.head("1.0"), digest),
        "GET /manifests": (lambda: registry.manifest("1.0"), server.store.manifests[digest]),
        "PUT": (lambda: registry.put_manifest("2", content, KIND), digest),
        "POST": (lambda: registry.put_blob(b"x"), digest_of(b"x")),
        "GET /blobs": (lambda: registry.blob(EMPTY), b"{}"),
    }
    work, expected = works[line]
    assert work() == expected
    assert len(said) == 2


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault(500), "500 .3 tries"),
        (Fault(429, {}, b'{"errors": [{"code": "TOO", "message": "slow"}]}'), "TOO: slow .3 tries"),
        (
            Fault(500, {}, b'{"errors": [{"code": "UNKNOWN", "detail": {"Op": "x", "Err": 28}}]}'),
            "no space left on device .3 tries",
        ),
        (Fault(reset=True), "no connection"),
        (Fault(cut=True), "its answer broke off"),
    ],
    ids=["500", "429", "disk", "reset", "cut"],
)
def test_a_fault_that_stays(
    registry: RegistryClient, server: RegistryServer, fault: Fault, expected: str
) -> None:
    server.fail("GET /manifests", *[fault] * ATTEMPTS)
    with pytest.raises(MachineError, match=f"{server.name}: .*1.0.*{expected}"):
        registry.manifest("1.0")


def test_an_answer_that_cannot_be_used(registry: RegistryClient, server: RegistryServer) -> None:
    server.fail("GET /manifests/1.0", Fault(200, {}, b"x" * ((1 << 24) + 1)))
    with pytest.raises(MachineError, match="sent more than 16 MiB"):
        registry.manifest("1.0")
    for body in (b"<html>", b"{}", b"[]", b'{"tags": 1}'):
        server.fail("GET /tags", Fault(200, {}, body))
        with pytest.raises(CheckFailedError, match="Is it a registry"):
            registry.tags()
    with pytest.raises(CheckFailedError, match=f"has no blob {ABSENT}"):
        registry.blob(ABSENT)
    server.fail("GET /manifests/doc", Fault(404))
    with pytest.raises(MachineError, match="doc was written and is not there"):
        registry.put_artifact("doc", KIND, b"{}")


@pytest.mark.parametrize(
    ("status", "hint"),
    [(400, ""), (403, "docker login"), (404, "does not create it"), (405, "mirror"), (413, "A pr")],
)
def test_what_is_refused_is_not_asked_again_and_says_what_to_do(
    registry: RegistryClient, server: RegistryServer, status: int, hint: str
) -> None:
    content = manifest_of(registry)
    server.fail("PUT /manifests", Fault(status, {}, b'{"errors": [{"code": "NO"}]}'))
    with pytest.raises(
        CheckFailedError, match=rf"writing 1.0 was refused: it answered {status}: NO\..*{hint}"
    ):
        registry.put_manifest("1.0", content, OCI_MANIFEST)
    assert server.lines().count("PUT /manifests/1.0") == 1
    server.fail("PUT /manifests", Fault(400, {}, b'{"errors": [{}]}'))
    with pytest.raises(CheckFailedError, match=r"it answered 400\.$"):
        registry.put_manifest("1.0", content, OCI_MANIFEST)
    assert registry.head("1.0") is None


def test_a_blob_that_another_writes_at_the_same_moment(
    registry: RegistryClient, server: RegistryServer
) -> None:
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


def test_an_upload_that_the_registry_forgot(
    registry: RegistryClient, server: RegistryServer
) -> None:
    lost = Fault(404, {}, b'{"errors": [{"code": "BLOB_UPLOAD_UNKNOWN"}]}')
    server.fail("PUT /blobs", lost)
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
    monkeypatch.setattr("imgbuild.registry.repository_client.LARGEST_BLOB", 1 << 20)
    with pytest.raises(MachineError, match="sent more than 1 MiB"):
        registry.blob(digest)


def test_a_wait_that_is_too_long_is_told_at_once(server: RegistryServer) -> None:
    server.fail("GET /manifests", Fault(429, {"Retry-After": "3600"}))
    with pytest.raises(MachineError, match=r"429 \(1 try\)\. It asks .* 3600 s: run this"):
        opened(server.name, policy=RetryPolicy(5, 0.0)).manifest("1.0")
    assert len([one for one in server.asked if "manifests" in one.path]) == 1


def test_connections_are_kept(registry: RegistryClient, server: RegistryServer) -> None:
    server.store.add_image("1.0")
    digests = in_parallel(registry.head, ["1.0"] * 60, 4)
    assert len(set(digests)) == 1
    assert len(server.connections) <= 4 + 2  # and those that ask which scheme is spoken
    assert [one.path for one in server.asked].count("/v2/") == 1


def test_faults_while_the_scheme_is_asked_for(server: RegistryServer) -> None:
    server.fail("GET /v2/", Fault(reset=True), Fault(cut=True))
    assert opened(server.name).tags() == ()
    server.fail("GET /v2/", *[Fault(400)] * ATTEMPTS)
    with pytest.raises(MachineError, match="TLS failed, or the server has none"):
        opened(server.name).tags()


def test_an_artifact_and_its_shape(registry: RegistryClient, server: RegistryServer) -> None:
    image = server.store.add_image("1.0")
    digest = registry.put_artifact("doc", KIND, b'{"a": 1}', image)
    found = registry.read_artifact("doc", KIND)
    assert found
    assert (found.document(), found.subject) == ({"a": 1}, image.digest)
    manifest = registry.manifest("doc")
    assert manifest
    assert (manifest.media_type, manifest.digest) == (OCI_MANIFEST, digest)
    subject = {"digest": image.digest, "size": len(image.content)}
    assert manifest.document() == {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": KIND,
        "config": {"mediaType": EMPTY_TYPE, "digest": EMPTY, "size": 2},
        "layers": [{"mediaType": KIND, "digest": digest_of(b'{"a": 1}'), "size": 8}],
        "subject": {"mediaType": image.media_type, **subject},
    }
    assert registry.put_artifact("again", KIND, b'{"a": 1}', image) == digest
    assert registry.read_artifact("other", KIND) is None


def test_what_is_not_the_artifact(registry: RegistryClient, server: RegistryServer) -> None:
    server.store.add_image("image")
    with pytest.raises(DamagedError, match=r"team/app:image is of the type None"):
        registry.read_artifact("image", KIND)
    registry.put_artifact("text", KIND, b"[1]")
    text = registry.read_artifact("text", KIND)
    assert text
    with pytest.raises(DamagedError, match=r"team/app:text is not a JSON object"):
        text.document()
    entry = {"mediaType": KIND, "digest": EMPTY, "size": 2}
    for layers in (0, 2):
        content = {"artifactType": KIND, "config": entry, "layers": [entry] * layers}
        registry.put_manifest("layers", json.dumps(content).encode(), OCI_MANIFEST)
        with pytest.raises(DamagedError, match="is not an artifact of imgbuild"):
            registry.read_artifact("layers", KIND)
