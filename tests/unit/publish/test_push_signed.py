"""Signed pushes: what is signed is what the engine sent, whatever a repository claims."""

from dataclasses import replace
from typing import Any

import pytest

from imgbuild.core.errors import CheckFailedError
from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import push_tag
from support.push_bench import FIRST, MOVING, NAME, SECOND, PushBench, id_of, place_image
from support.signed_push_bench import SignedBench


@pytest.fixture
def bench(images: dict[str, Image]) -> SignedBench:
    return SignedBench(images[NAME])


def _foreign(bench: PushBench) -> dict[str, Any]:
    """Return the configuration and the layers of somebody else's image, as a manifest has them."""
    manifest = bench.registry.add_image("foreign", (b"layer", b"another layer"))
    document = manifest.document()
    return {"config": document["config"], "layers": document["layers"]}


@pytest.mark.parametrize("keys", [("Config", "Layers"), ("Config",), ("LAYERS",), ("manifests",)])
def test_push_signs_no_ambiguous_manifest(bench: SignedBench, keys: tuple[str, ...]) -> None:
    """Docker reads the second of two keys that differ in case, Python the exact one."""
    foreign = _foreign(bench)
    bench.put_manifest(**{key: foreign.get(key.lower(), []) for key in keys})
    before = dict(bench.registry.tagged)
    with pytest.raises(CheckFailedError, match="key"):
        bench.push_signed()
    assert not bench.signer.signed
    assert bench.registry.tagged == before


@pytest.mark.parametrize("key", ["cosign.key", None])
def test_push_signs_no_manifest_with_other_layers(
    images: dict[str, Image], key: str | None
) -> None:
    """Its configuration is ours, so to an engine with a graph driver it has our id."""
    bench = SignedBench(images[NAME], key=key)
    changed = bench.put_manifest(layers=_foreign(bench)["layers"])
    with pytest.raises(CheckFailedError, match=r"--release 20261120\.2") as caught:
        bench.push_signed()
    assert changed in str(caught.value)
    assert not bench.signer.signed
    assert bench.digests(FIRST) == {changed}
    assert not {*MOVING, f"{FIRST}.record"} & {*bench.registry.tagged}


def test_push_signs_no_manifest_with_annotations(bench: SignedBench) -> None:
    changed = bench.put_manifest(annotations={"org.opencontainers.image.base.name": "x"})
    with pytest.raises(CheckFailedError, match=FIRST):
        bench.push_signed()
    assert changed not in bench.signer.signed


def test_push_completes_an_unsigned_image(bench: SignedBench) -> None:
    """It is sent again under a tag of its own, and signed because its digest is the same."""
    place_image(bench.registry, "one", FIRST)
    (digest,) = bench.digests(FIRST)
    found = bench.push_signed()
    assert found.done[:2] == ("signed", "recorded")
    assert bench.writes()[0] == "upload"
    assert f"put {FIRST}" not in bench.writes()
    assert [*bench.signer.signed] == [digest]
    assert bench.digests(FIRST, *MOVING) == {digest}


def test_push_keyless_compares_what_somebody_signed(images: dict[str, Image]) -> None:
    """Without a key nobody can tell whose signature is there; the content still has to be ours."""
    bench = SignedBench(images[NAME], key=None)
    changed = bench.put_manifest(layers=_foreign(bench)["layers"])
    bench.signer.sign(f"{bench.registry.name}@{changed}", {})
    with pytest.raises(CheckFailedError, match=FIRST):
        bench.push_signed()
    assert not {*MOVING} & {*bench.registry.tagged}


def test_push_sends_nothing_if_it_is_signed(bench: SignedBench) -> None:
    bench.push_signed()
    del bench.registry.tagged[MOVING[0]]
    assert bench.push_signed().steps == (f"move {MOVING[0]}",)
    assert bench.writes() == [f"put {MOVING[0]}"]


def test_push_signs_again_for_other_tags(bench: SignedBench) -> None:
    """`verify` believes the tags of the provenance alone; the record may be somebody else's."""
    digest = bench.push_signed().record.digest
    other = "2.2.3-cpu-py36-debian12-openmpi4.1.4-20261120.9"
    bench.registry.tagged[other] = digest
    found = bench.push_signed("one", "20261120.9")
    assert found.done[:2] == ("signed", "recorded")
    (predicate,) = bench.signer.read_attestations(f"x@{digest}", "slsaprovenance1")
    assert predicate["buildDefinition"]["externalParameters"]["tags"]["immutable"] == other


def test_push_signs_again_over_a_forged_signature(bench: SignedBench) -> None:
    bench.signer.forged.add(bench.push_signed().record.digest)
    assert bench.push_signed().done == ("signed",)
    assert bench.push_signed().done == ()


@pytest.mark.parametrize("key", ["cosign.key", None])
def test_push_signs_a_recorded_image(images: dict[str, Image], key: str | None) -> None:
    """It was pushed without a signer before."""
    bench = SignedBench(images[NAME], key=key)
    unsigned = PushBench(images[NAME], registry=bench.registry)
    digest = unsigned.push().record.digest
    assert bench.push_signed().done == ("signed",)
    assert [*bench.signer.signed] == [digest]
    del bench.registry.tagged[f"{digest.replace(':', '-')}.sbom"]
    assert unsigned.push().done == ("attached",)


def test_push_signs_again_for_more_moving_tags(bench: SignedBench) -> None:
    """The matrix may get a scheme with other moving tags."""
    digest = bench.push_signed().record.digest
    documents = bench.signer.signed[digest]
    fewer = documents["slsaprovenance1"].replace(f', "{MOVING[1]}"'.encode(), b"")
    documents["slsaprovenance1"] = fewer
    assert bench.push_signed().done == ("signed",)
    assert bench.push_signed().done == ()


def test_push_puts_a_moved_tag_back(bench: SignedBench) -> None:
    """A push that had checked the tag before another one finished, and was killed after it."""
    record = bench.push_signed().record
    moved = place_image(bench.registry, "rival", FIRST)
    for content in ("rival", "one"):
        place_image(bench.registry, "rival", FIRST)
        with pytest.raises(CheckFailedError, match="moved back") as caught:
            bench.push_signed(content, "20261120.1")
        assert moved in str(caught.value)
        assert record.digest in str(caught.value)
        assert bench.writes() == [f"put {FIRST}"]
        assert bench.digests(FIRST, *MOVING) == {record.digest}
    assert bench.record() == record
    assert bench.push_signed("rival").record.tag == SECOND


def test_push_plan_only_reports_a_moved_tag(bench: SignedBench) -> None:
    record = bench.push_signed().record
    moved = place_image(bench.registry, "rival", FIRST)
    with pytest.raises(CheckFailedError, match=record.digest):
        bench.session("20261120.1").plan(bench.candidate())
    assert bench.digests(FIRST) == {moved}


@pytest.mark.parametrize("signed_as", ["", SECOND])
def test_push_believes_no_unproved_record(bench: SignedBench, signed_as: str) -> None:
    """Neither of an unsigned image nor of one that was signed as another release."""
    old = bench.push_signed("old", "20261120.2").record if signed_as else None
    bench.push_signed("one", "20261120.1")
    digest = old.digest if old else bench.registry.add_image("forged").digest
    forged = replace(bench.record(), digest=digest)
    bench.put(forged)
    before = dict(bench.registry.tagged)
    with pytest.raises(CheckFailedError, match=digest) as caught:
        bench.push_signed("one", "20261120.1")
    (there,) = bench.digests(FIRST)
    assert there in str(caught.value)
    assert bench.registry.tagged == before
    assert bench.registry.manifests[there].config_digest == id_of("one")


def test_push_passes_over_an_announced_release(bench: SignedBench) -> None:
    """Another push has sent its image and was killed before the immutable tag."""
    bench.at(f"put {FIRST}", lambda: pytest.fail("killed"))
    with pytest.raises(BaseException, match="killed"):
        bench.push_signed("rival")
    assert FIRST not in bench.registry.tagged
    assert bench.push_signed("one").record.tag == SECOND
    assert bench.push_signed("rival").record.tag == FIRST, "its own announcement is no obstacle"


def test_push_gives_way_to_an_announcement(bench: SignedBench) -> None:
    """The other push announces the tag after this one has looked, and has not written it yet."""
    other = push_tag(FIRST, "sha256:other", "elsewhere")
    bench.at("upload", lambda: place_image(bench.registry, "rival", other))
    with pytest.raises(CheckFailedError, match=r"--release 20261120\.2") as caught:
        bench.push_signed("one", "20261120.1")
    assert other in str(caught.value)
    assert FIRST not in bench.registry.tagged
    assert not bench.signer.signed
    assert bench.push_signed("one").record.tag == SECOND


def test_push_of_one_image_twice_is_no_conflict(bench: SignedBench) -> None:
    """The same content has the same digest, whoever announces it."""
    other = push_tag(FIRST, id_of("one"), "elsewhere")
    bench.at("upload", lambda: place_image(bench.registry, "one", other))
    assert bench.push_signed().record.tag == FIRST
