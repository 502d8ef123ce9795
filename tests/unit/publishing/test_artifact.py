"""Small documents beside images: as OCI has them, and told from what is none."""

import json

import pytest

from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.publishing.artifact import DamagedError, get_artifact, put_artifact
from imgbuild.registry.digest import digest_of
from imgbuild.registry.fake import MemoryRegistry
from imgbuild.registry.media_types import OCI_MANIFEST

KIND = "application/vnd.imgbuild.test.v1+json"


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


def test_what_is_put_is_got(registry: MemoryRegistry) -> None:
    image = registry.add_image("1.0")
    digest = put_artifact(registry, "doc", KIND, {"b": "é", "a": [1]}, image)
    found = get_artifact(registry, "doc", KIND)
    assert found
    assert (found.document, found.digest) == ({"a": [1], "b": "é"}, digest)
    assert found.subject == image.digest


def test_its_shape(registry: MemoryRegistry) -> None:
    image = registry.add_image("1.0")
    put_artifact(registry, "doc", KIND, {}, image)
    manifest = registry.manifest("doc")
    assert manifest
    assert manifest.media_type == OCI_MANIFEST
    empty = {"digest": digest_of(b"{}"), "size": 2}
    assert manifest.document() == {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": KIND,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", **empty},
        "layers": [{"mediaType": KIND, **empty}],
        "subject": {
            "mediaType": image.media_type,
            "digest": image.digest,
            "size": len(image.content),
        },
    }


def test_the_same_document_has_one_digest(registry: MemoryRegistry) -> None:
    one = put_artifact(registry, "one", KIND, {"a": 1, "b": 2})
    assert put_artifact(registry, "two", KIND, {"b": 2, "a": 1}) == one


def test_absent(registry: MemoryRegistry) -> None:
    assert get_artifact(registry, "doc", KIND) is None


def test_an_image_is_none(registry: MemoryRegistry) -> None:
    registry.add_image("doc")
    with pytest.raises(DamagedError, match=r"registry\.test/team/app:doc is of the kind None"):
        get_artifact(registry, "doc", KIND)


@pytest.mark.parametrize("content", [b"no JSON", b"[1]", b'"text"'])
def test_what_is_no_document(registry: MemoryRegistry, content: bytes) -> None:
    put_artifact(registry, "doc", KIND, {})
    entry = {"mediaType": "x/y", "digest": registry.put_blob(content), "size": len(content)}
    manifest = {"artifactType": KIND, "config": entry, "layers": [entry]}
    registry.put_manifest("doc", json.dumps(manifest).encode(), OCI_MANIFEST)
    with pytest.raises(DamagedError, match="holds no JSON object"):
        get_artifact(registry, "doc", KIND)


@pytest.mark.parametrize("layers", [0, 2])
def test_another_number_of_layers(registry: MemoryRegistry, layers: int) -> None:
    entry = {"mediaType": "x/y", "digest": registry.put_blob(b"{}"), "size": 2}
    manifest = {"artifactType": KIND, "config": entry, "layers": [entry] * layers}
    registry.put_manifest("doc", json.dumps(manifest).encode(), OCI_MANIFEST)
    with pytest.raises(DamagedError, match="is no document of imgbuild"):
        get_artifact(registry, "doc", KIND)


def test_a_manifest_needs_its_blobs(registry: MemoryRegistry) -> None:
    entry = {"mediaType": "x/y", "digest": digest_of(b"never sent"), "size": 2}
    manifest = {"config": entry, "layers": []}
    with pytest.raises(CheckFailedError, match="blob unknown"):
        registry.put_manifest("doc", json.dumps(manifest).encode(), OCI_MANIFEST)


def test_what_the_registry_says_it_wrote_and_has_not(registry: MemoryRegistry) -> None:
    def forget(call: str) -> None:
        if call == "manifest tag":
            del registry.tagged["tag"]

    registry.before = forget
    with pytest.raises(MachineError, match="was written and is not there"):
        put_artifact(registry, "tag", "application/x", {})


def test_what_nobody_could_read_is_not_written(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imgbuild.publishing.artifact.LARGEST_BLOB", 1 << 20)
    put_artifact(registry, "tag", KIND, {"a": "x" * ((1 << 20) - 9)})
    before = dict(registry.tagged), dict(registry.blobs)
    with pytest.raises(CheckFailedError, match="tag would be 1 MiB, and imgbuild reads 1 MiB"):
        put_artifact(registry, "tag", KIND, {"a": "x" * (1 << 20)})
    assert (registry.tagged, registry.blobs) == before
