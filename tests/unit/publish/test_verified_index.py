"""`verify` of a tag that points to the index of a release for two platforms."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from imgbuild.core.project import Project
from imgbuild.engine.types import AMD64, ARM64
from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import index_tag
from imgbuild.publish.release_index import INDEX_TYPE, index_content
from support.verification_bench import (
    CHECKS,
    FIRST,
    RETIRED,
    SECOND,
    VerificationBench,
    verification_bench,
)

NAME = "tf-2.18-cpu-debian"
OTHER = "tf-2.17-cpu-debian"


@pytest.fixture
def bench(
    project: Project, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> VerificationBench:
    return verification_bench(project, images, monkeypatch)


def _put_index(bench: VerificationBench, tag: str, digests: dict[str, str]) -> str:
    """Put a signed index of any images at a tag; return its digest."""
    manifests = {platform: bench.registry.manifests[one] for platform, one in digests.items()}
    document = json.loads(index_content(manifests))
    digest = bench.registry.add_manifest(tag, document, INDEX_TYPE).digest
    bench.cosign.signatures.add(("public own", bench.reference(digest)))
    return digest


def test_each_image_of_an_index_is_verified(bench: VerificationBench) -> None:
    first, second, index = bench.publish_index(NAME)
    for tag in (index_tag(first.tag), *first.moving):
        reference, facts = bench.verify(tag)
        # This engine cannot run the image for arm64, so no fact says that its contents agree.
        assert [fact.name for fact in facts] == [
            "index",
            *(f"{AMD64}: {check}" for check in CHECKS),
            *(f"{ARM64}: {check}" for check in CHECKS if check != "contents"),
        ]
        assert {fact.problem for fact in facts} == {""}
        assert reference == bench.reference(index)
        (note,) = bench.notes
        assert second.digest in note
        bench.said.clear()
    assert bench.problems(digest=index) == {}


def test_index_without_a_trusted_signature_is_refused(bench: VerificationBench) -> None:
    first, _, index = bench.publish_index(NAME)
    bench.cosign.signatures.remove(("public own", bench.reference(index)))
    assert bench.problems(first.moving[0]).keys() == {"index"}


@pytest.mark.parametrize("platform", [AMD64, ARM64])
def test_image_of_an_index_without_a_signature_is_refused(
    bench: VerificationBench, platform: str
) -> None:
    first, second, _ = bench.publish_index(NAME)
    digest = {AMD64: first, ARM64: second}[platform].digest
    bench.cosign.signatures.remove(("public own", bench.reference(digest)))
    assert bench.problems(first.moving[0]).keys() == {f"{platform}: signature"}


def test_index_at_the_tag_of_another_image_is_refused(bench: VerificationBench) -> None:
    """Somebody who may write to the repository moves a tag to another signed index."""
    first, _, _ = bench.publish_index(NAME)
    _, _, other = bench.publish_index(OTHER)
    bench.registry.tagged[first.moving[0]] = other
    problems = bench.problems(first.moving[0])
    assert {"index", f"{AMD64}: tag", f"{ARM64}: tag"} <= problems.keys()


def test_index_at_an_immutable_tag_is_refused(bench: VerificationBench) -> None:
    first, _, index = bench.publish_index(NAME)
    bench.registry.tagged[first.tag] = index
    assert f"{AMD64}: record" in bench.problems(first.tag)


@pytest.mark.parametrize(
    "choose",
    [
        pytest.param(lambda old, new: {AMD64: new[0], ARM64: old[1]}, id="two releases"),
        pytest.param(lambda _, new: {AMD64: new[1], ARM64: new[0]}, id="exchanged platforms"),
        pytest.param(lambda _, new: {AMD64: new[0], ARM64: new[0]}, id="one image"),
    ],
)
def test_signed_index_of_other_images_is_refused(
    bench: VerificationBench,
    choose: Callable[[list[str], list[str]], dict[str, str]],
) -> None:
    old = [record.digest for record in bench.publish_index(NAME, FIRST)[:2]]
    first, second, _ = bench.publish_index(NAME, SECOND)
    _put_index(bench, first.moving[0], choose(old, [first.digest, second.digest]))
    assert "index" in bench.problems(first.moving[0])


def test_index_by_digest_has_images_for_its_platforms(bench: VerificationBench) -> None:
    """There is no tag then, so only the provenances say which image is for which platform."""
    first, second, _ = bench.publish_index(NAME)
    digest = _put_index(bench, "any", {AMD64: second.digest, ARM64: first.digest})
    assert "index" in bench.problems(digest=digest)


def test_record_with_another_platform_is_refused(bench: VerificationBench) -> None:
    first, second, _ = bench.publish_index(NAME)
    bench.put(replace(second, platform=AMD64))
    assert bench.problems(first.moving[0]).keys() == {f"{ARM64}: record"}


def test_index_with_a_retired_image_is_refused(bench: VerificationBench) -> None:
    first, second, _ = bench.publish_index(NAME)
    bench.cosign.attest(bench.reference(second.digest), "urn:imgbuild:retirement:1", RETIRED)
    assert bench.problems(first.moving[0]).keys() == {f"{ARM64}: retirement"}


def test_index_that_was_moved_back_is_noted(bench: VerificationBench) -> None:
    first, _, older = bench.publish_index(NAME, FIRST)
    second, _, _ = bench.publish_index(NAME, SECOND)
    bench.registry.tagged[first.moving[0]] = older
    assert bench.problems(first.moving[0]) == {}
    (note,) = (note for note in bench.notes if "older release" in note)
    assert second.tag in note
    bench.said.clear()
    assert bench.problems(first.moving[1]) == {}
    assert not any("older release" in note for note in bench.notes)


def test_index_that_was_moved_back_to_another_image_for_arm64_is_noted(
    bench: VerificationBench,
) -> None:
    """The image for amd64 is the same in both releases."""
    first, _, older = bench.publish_index(NAME, FIRST)
    later, other, _ = bench.publish_index(NAME, SECOND)
    same = replace(later, digest=first.digest, image_id=first.image_id)
    same = replace(same, input_digest=first.input_digest)
    bench.registry.tagged[same.tag] = first.digest
    bench.put(same)
    bench.attest(same)
    _put_index(bench, index_tag(same.tag), {AMD64: first.digest, ARM64: other.digest})
    for tag in first.moving:
        bench.registry.tagged[tag] = older
    bench.said.clear()
    bench.verify(first.moving[0])
    assert any(same.tag in note for note in bench.notes)


def test_index_of_another_program_is_refused(bench: VerificationBench) -> None:
    first, second, _ = bench.publish_index(NAME)
    manifests = {one.platform: bench.registry.manifests[one.digest] for one in (first, second)}
    document = {**json.loads(index_content(manifests)), "annotations": {"a": "b"}}
    index = bench.registry.add_manifest(first.moving[0], document, INDEX_TYPE)
    bench.cosign.signatures.add(("public own", bench.reference(index.digest)))
    assert bench.problems(first.moving[0]).keys() == {"index"}


def test_missing_image_of_an_index_is_named(bench: VerificationBench) -> None:
    first, second, _ = bench.publish_index(NAME)
    del bench.registry.manifests[second.digest]
    assert ARM64 in bench.problems(first.moving[0])["index"]
