"""What the tests of `imgbuild push` check in a registry is really checked, and counted right."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import requests
from fault_counts import FaultCounts, NotInjectedError, injected, table
from own_registry import own_registry
from published_state import INDEX, RECORD, PublishedState
from registry_storage import RegistryStorage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from own_registry import OwnRegistry

pytestmark = pytest.mark.nightly

REPOSITORY = "ml/tensorflow"
TAG = "1.10.0-cpu-20260101.1"
OCI = "application/vnd.oci.image.manifest.v1+json"


class Written:
    """A repository that a test fills, and its checked state."""

    def __init__(self, registry: OwnRegistry) -> None:
        self.url = f"{registry.url}/v2/{REPOSITORY}"
        self.green: set[str] = set()
        storage = RegistryStorage(registry.storage, REPOSITORY)
        self.state = PublishedState(storage, lambda: self.green)

    def blob(self, content: bytes) -> dict[str, Any]:
        begun = requests.post(f"{self.url}/blobs/uploads/", timeout=10)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        place = begun.headers["Location"]
        assert requests.put(place, params={"digest": digest}, data=content, timeout=10).ok
        return {"mediaType": "application/octet-stream", "digest": digest, "size": len(content)}

    def put(self, tag: str, document: dict[str, Any]) -> str:
        headers = {"Content-Type": OCI}
        url = f"{self.url}/manifests/{tag}"
        answer = requests.put(url, data=json.dumps(document), headers=headers, timeout=10)
        assert answer.ok, answer.text
        return answer.headers["Docker-Content-Digest"]

    def image(self, tag: str, config: bytes = b"{}", *, green: bool = True) -> str:
        """Put an image; return its digest."""
        told = self.blob(config)
        if green:
            self.green.add(told["digest"])
        layers = [self.blob(b"layer" + config)]
        return self.put(
            tag, {"schemaVersion": 2, "mediaType": OCI, "config": told, "layers": layers}
        )

    def document(
        self, tag: str, kind: str, content: dict[str, Any], subject: str | None = None
    ) -> None:
        about = {"subject": {"mediaType": OCI, "digest": subject, "size": 1}} if subject else {}
        config, layer = self.blob(b"{}"), self.blob(json.dumps(content).encode())
        manifest = {"schemaVersion": 2, "mediaType": OCI, "artifactType": kind, "config": config}
        self.put(tag, {**manifest, "layers": [layer], **about})

    def whole(self) -> str:
        """Put all that belongs to one image, in the right order; return its digest."""
        digest = self.image(TAG)
        config = self.state.image_id(digest)
        record = {"tag": TAG, "digest": digest, "image_id": config}
        report = {"files": {"verdict": "passed"}}
        self.document(f"{TAG}.record", RECORD, {**record, "report": report}, digest)
        self.image("1.10-cpu")
        told = {"records": [{**record, "report": {}}], "moving": {"1.10-cpu": TAG}}
        self.document("index", INDEX, told)
        return digest


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    with own_registry(tmp_path) as registry:
        yield Written(registry)


def test_what_is_as_it_should_be(written: Written) -> None:
    digest = written.whole()
    written.state.check()
    assert written.state.check_done(TAG, "1.10-cpu")["1.10-cpu"] == digest


def test_a_tag_that_moves_too_early(written: Written) -> None:
    written.image("1.10-cpu")
    with pytest.raises(AssertionError, match=r"1\.10-cpu moved before its immutable tag"):
        written.state.check()


def test_a_tag_that_moves_to_what_has_not_passed(written: Written) -> None:
    written.whole()
    written.image("1.10-cpu", b'{"another": 1}', green=False)
    with pytest.raises(AssertionError, match="which has not passed"):
        written.state.check()


def test_an_immutable_tag_that_moves(written: Written) -> None:
    written.whole()
    written.state.check()
    written.image(TAG, b'{"another": 1}')
    written.image("1.10-cpu", b'{"another": 1}')
    with pytest.raises(AssertionError, match=rf"{TAG} was sha256:\w+ and is sha256:"):
        written.state.check()


@pytest.mark.parametrize("damage", ["gone", "another"])
def test_content_that_is_not_whole(written: Written, damage: str) -> None:
    digest = written.whole()
    layer = written.state.storage.document(digest)["layers"][0]["digest"]
    path = written.state.storage.path(layer)
    path.unlink() if damage == "gone" else path.write_bytes(b"other")
    with pytest.raises(AssertionError, match=f"lacks .*{layer}"):
        written.state.check()


def test_a_tag_too_many(written: Written) -> None:
    written.whole()
    written.image("latest")
    with pytest.raises(AssertionError, match="latest"):
        written.state.check_done(TAG, "1.10-cpu")


def test_an_index_that_lacks_an_image(written: Written) -> None:
    written.whole()
    written.document("index", INDEX, {"records": [], "moving": {"1.10-cpu": TAG}})
    with pytest.raises(AssertionError):
        written.state.check_done(TAG, "1.10-cpu")


def test_a_registry_as_it_was(written: Written, tmp_path: Path) -> None:
    """Also what was written into files that were there before."""
    digest, storage = written.whole(), written.state.storage
    storage.keep(tmp_path / "kept")
    written.image("1.10-cpu", b'{"another": 1}')
    storage.restore(tmp_path / "kept")
    assert storage.tags()["1.10-cpu"] == digest
    written.state.check_done(TAG, "1.10-cpu")


def test_the_counts_make_the_table(tmp_path: Path) -> None:
    report = tmp_path / "reports" / "faults.json"
    for fault, survived, lost in (("a reset", 3, 0), ("a full disk", 0, 1), ("a reset", 4, 0)):
        counts = FaultCounts(fault, report=report, every=True)
        for word, times in (("survived", survived), ("rerun", 2), ("lost", lost)):
            for _ in range(times):
                counts.note(word)
        counts.save()
    assert table(report).splitlines()[2:] == [
        "| a reset | 6 | 4 | 2 | 0 |",
        "| a full disk | 3 | 0 | 2 | 1 |",
        "| **all** | 9 | 4 | 4 | 1 |",
    ]


def test_counts_of_some_moments_are_not_the_page_s(tmp_path: Path) -> None:
    report = tmp_path / "faults.json"
    FaultCounts("a reset", survived=1, report=report, every=False).save()
    assert not report.exists()


def test_a_push_that_is_lost_is_on_the_page_and_one_without_its_fault_is_not(
    tmp_path: Path,
) -> None:
    report = tmp_path / "faults.json"

    def lose(_kit: str, at: int) -> str:
        injected(at < 3)
        assert at < 2, "a tag is gone"
        return "survived"

    def pushes() -> None:
        with FaultCounts("a reset", report=report, every=True) as counts:
            for at in (1, 2, 3):
                with suppress(AssertionError):
                    counts.each(lose)("kit", at)

    with pytest.raises(NotInjectedError):
        pushes()
    assert table(report).splitlines()[2] == "| a reset | 2 | 1 | 0 | 1 |"
