"""Pushing images: the order, what is done again, other pushes at the same time, a dry run.

What is cut off or does not arrive is tried with a real registry, in tests/e2e/test_push_faults.py.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from memory_registry import MemoryRegistry
from published_images import publish

from imgbuild.errors import CheckFailedError
from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import input_tag
from imgbuild.publish.candidate import PushCandidate
from imgbuild.publish.push import Push, PushedImage
from imgbuild.publish.record import Record, put_record, read_record
from imgbuild.registry.repository import digest_of
from imgbuild.registry.signing import TYPES
from imgbuild.trust.attachments import Attachments
from releases import release_of

NAME = "tf-2.2-cpu-debian"
STEM = f"{release_of('2.2')}-cpu-py36-debian12-openmpi4.1.4"
FIRST, SECOND = f"{STEM}-20261120.1", f"{STEM}-20261120.2"
MOVING = ("2.2-cpu", f"{release_of('2.2')}-cpu")
REPORT = {"pins": {"verdict": "passed", "passed": 3, "skipped": []}}
PACKAGES = {"numpy": "1.18.5"}
SNAPSHOTS = {"debian": "20261101T000000Z"}


def id_of(content: str) -> str:
    """Return the id, on a graph driver, of the image that this word stands for."""
    return digest_of(json.dumps({"tag": content}).encode())


def input_of(content: str) -> str:
    return input_tag(digest_of(content.encode()))


def documents(*_: object) -> dict[str, bytes]:
    """Return what is said of an image."""
    return dict.fromkeys(TYPES, b"{}")


def place_image(registry: MemoryRegistry, content: str, tag: str) -> str:
    """Put an image under a tag, as another's push does; return its digest."""
    before = dict(registry.tagged)
    digest = registry.add_image(content).digest
    registry.tagged.clear()
    registry.tagged |= {**before, tag: digest}
    return digest


@dataclass
class Bench:
    """A registry, and an engine whose images are words."""

    image: Image
    registry: MemoryRegistry = field(default_factory=MemoryRegistry)
    hour: int = 10

    def candidate(self, content: str = "one", image_id: str = "") -> PushCandidate:
        inputs = digest_of(content.encode())
        return PushCandidate(
            self.image,
            image_id or id_of(content),
            inputs,
            (),
            REPORT,
            (),
            PACKAGES,
            SNAPSHOTS,
            work_seconds=float(self.hour),  # another one each time
        )

    def session(self, release: str | None = None) -> Push:
        self.hour += 1
        now = datetime(2026, 11, 20, self.hour, tzinfo=UTC)
        attachments = Attachments(self.registry)
        return Push(
            self.registry, self.registry.tags(), release, print, attachments, now=lambda: now
        )

    def push(
        self, content: str = "one", release: str | None = None, image_id: str = ""
    ) -> PushedImage:
        candidate = self.candidate(content, image_id)
        session = self.session(release)
        self.registry.calls.clear()
        return session.push(candidate, lambda tag: self.upload(content, tag), documents)

    def upload(self, content: str, tag: str) -> None:
        self.registry.calls.append("upload")
        place_image(self.registry, content, tag)

    def at(self, call: str, action: Callable[[], object]) -> None:
        """Do something once, just before a call to the registry."""

        def before(found: str) -> None:
            if found == call:
                self.registry.before = lambda _: None
                action()

        self.registry.before = before

    def writes(self) -> list[str]:
        calls = self.registry.calls
        tags = [one for one in calls if one.startswith("put ") and "put blob" not in one]
        return tags if "upload" not in calls else ["upload", *tags]

    def at_first(self) -> str:
        """Return the id of the image at the first immutable tag."""
        return self.registry.manifests[self.registry.tagged[FIRST]].config_digest

    def put(self, record: Record) -> None:
        put_record(self.registry, record, self.registry.manifests[record.digest])

    def record(self, tag: str = FIRST) -> Record:
        found = read_record(self.registry, tag)
        assert found
        return found


@pytest.fixture
def bench(images: dict[str, Image]) -> Bench:
    return Bench(images[NAME])


def test_content_then_record_then_input_tag_then_moving_tags(bench: Bench) -> None:
    found = bench.push()
    assert found.steps == ("push", "attach", "record", *(f"move {tag}" for tag in MOVING))
    assert found.done == ("pushed", "attached", "recorded", *(f"moved {tag}" for tag in MOVING))
    writes = bench.writes()
    (verdicts,) = [one for one in writes if one.startswith("put verdicts-")]
    rest = [f"put {input_of('one')}", *(f"put {tag}" for tag in MOVING)]
    digest = found.record.digest
    stem = digest.replace(":", "-")
    attached = [f"put {stem}.sbom", f"put {stem}", f"put {stem}.provenance", f"put {stem}"]
    assert writes == ["upload", *attached, f"put {FIRST}.record", verdicts, *rest]
    listed = bench.registry.manifests[bench.registry.tagged[stem]].document()["manifests"]
    about = {bench.registry.tagged[f"{stem}.{end}"] for end in ("sbom", "provenance")}
    assert {one["digest"] for one in listed} == about
    provenance = bench.registry.read_artifact(f"{stem}.provenance", "application/vnd.in-toto+json")
    assert provenance
    (subject,) = provenance.document()["subject"]
    assert f"sha256:{subject['digest']['sha256']}" == provenance.subject == digest
    assert {bench.registry.tagged[tag] for tag in (FIRST, input_of("one"), *MOVING)} == {digest}
    assert found.record == bench.record()
    assert found.record.packages == PACKAGES
    assert found.record.snapshots == SNAPSHOTS
    assert found.record.build_seconds > 0
    assert (found.record.image_id, found.record.release) == (id_of("one"), "20261120.1")
    assert found.record.size == len(b'{"tag": "one"}layer')
    assert [one.verdict for one in found.record.suites] == ["passed"]


@pytest.mark.parametrize("store", ["graph driver", "containerd"])
def test_what_is_there_is_only_read(bench: Bench, store: str) -> None:
    """By its id in either store: the second engine may be another."""
    digest = bench.push().record.digest
    before = bench.record()
    found = bench.push(image_id=digest if store == "containerd" else "")
    assert (found.steps, found.kept, found.record) == ((), (), before)
    assert bench.writes() == []


def test_another_image_gets_the_next_release_and_keeps_the_moving_tags(bench: Bench) -> None:
    first = bench.push("one").record
    later = bench.push("two").record
    assert (later.tag, bench.registry.tagged[FIRST]) == (SECOND, first.digest)
    found = bench.push("one")
    assert found.steps == ()
    assert found.kept == tuple(f"{tag} stays at {SECOND}" for tag in MOVING)
    assert {bench.registry.tagged[tag] for tag in MOVING} == {later.digest}
    del bench.registry.tagged[MOVING[0]]
    found = bench.push("one")
    assert (found.moves, found.kept) == (MOVING[:1], (f"{MOVING[1]} stays at {SECOND}",))
    bench.registry.tagged |= dict.fromkeys(MOVING, first.digest)
    assert bench.push("two").moves == MOVING, "moved back, they come to the later image again"


def test_a_moving_tag_that_another_image_took_is_taken_back(bench: Bench) -> None:
    """Only a later one of the same image keeps it."""
    record = bench.push().record
    taken = {"image": "tf-2.2-cpu-other", "moving": MOVING}
    publish(bench.registry, "other", **taken, published="2026-12-01T00:00:00Z")
    found = bench.push()
    assert (found.moves, found.kept) == (MOVING, ())
    assert {bench.registry.tagged[tag] for tag in MOVING} == {record.digest}


def test_an_immutable_tag_is_never_overwritten(bench: Bench) -> None:
    other = place_image(bench.registry, "other", FIRST)
    with pytest.raises(CheckFailedError) as caught:
        bench.push(release="20261120.1")
    for fact in (other, id_of("other"), id_of("one"), "--release"):
        assert fact in str(caught.value)
    assert bench.registry.tagged == {FIRST: other}
    assert bench.writes() == []


def test_a_record_keeps_the_tag_that_was_removed_for_its_image(bench: Bench) -> None:
    """Who removes an immutable tag does not make room for another image under it."""
    bench.push("other", release="20261120.1")
    del bench.registry.tagged[FIRST]
    with pytest.raises(CheckFailedError, match=FIRST):
        bench.push("one", release="20261120.1")
    assert FIRST not in bench.registry.tagged


def test_another_release_of_the_same_image(bench: Bench) -> None:
    bench.push()
    found = bench.push(release="20261120.7")
    assert found.record.tag == f"{STEM}-20261120.7"
    assert bench.registry.tagged[FIRST] == found.record.digest
    assert bench.registry.tagged[MOVING[0]] == found.record.digest


def test_a_missing_input_tag_is_set_and_the_record_keeps_what_is_only_in_it(bench: Bench) -> None:
    facts: dict[str, Any] = {"retired": "2026-01-01", "system": {"openssl": "3.0.1"}}
    old = replace(bench.push().record, published="2025-01-01T00:00:00Z", **facts)
    bench.put(old)
    del bench.registry.tagged[input_of("one")]
    found = bench.push()
    assert (found.steps, found.record) == (("record",), old)
    assert bench.writes() == [f"put {input_of('one')}"]


def test_more_suites_are_recorded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.push()
    monkeypatch.setitem(REPORT["pins"], "passed", 4)
    found = bench.push()
    assert found.steps == ("record",)
    assert bench.record().suites[0].passed == 4


def test_a_damaged_record_is_written_again(bench: Bench) -> None:
    bench.push()
    bench.registry.tagged[f"{FIRST}.record"] = bench.registry.tagged[FIRST]
    assert bench.push().steps == ("record",)
    assert bench.record().tag == FIRST


def test_a_plan_only_reads(bench: Bench) -> None:
    steps = ("push", "attach", "record", *(f"move {tag}" for tag in MOVING))
    kept = tuple(f"{tag} stays at {SECOND}" for tag in MOVING)
    for pushed, expected in (("", (steps, ())), ("one", ((), ())), ("two", ((), kept))):
        if pushed:
            bench.push(pushed)
        bench.registry.calls.clear()
        found = bench.session().plan(bench.candidate())
        assert (found.record.tag, bench.writes()) == (FIRST, [])
        assert (found.steps, found.kept) == expected


def test_a_moving_tag_that_another_push_moved_is_left_and_reported(bench: Bench) -> None:
    bench.at(f"put {FIRST}.record", lambda: place_image(bench.registry, "rival", MOVING[0]))
    with pytest.raises(CheckFailedError, match=MOVING[0]) as caught:
        bench.push()
    digest = bench.registry.tagged[MOVING[0]]
    assert bench.registry.manifests[digest].config_digest == id_of("rival")
    assert digest in str(caught.value)
    bench.push()
    bench.at(f"put {SECOND}.record", lambda: bench.registry.tagged.pop(MOVING[0]))
    with pytest.raises(CheckFailedError, match=MOVING[0]):
        bench.push("two")


@pytest.mark.parametrize("tag", [input_of("one"), *MOVING])
def test_a_tag_that_is_moved_afterwards_is_reported(bench: Bench, tag: str) -> None:
    last = f"manifest {FIRST}.record"
    reads = []

    def before(call: str) -> None:
        if call == last:
            reads.append(call)
        if call == f"head {FIRST}" and len(reads) > 1:
            place_image(bench.registry, "rival", tag)

    bench.registry.before = before
    with pytest.raises(CheckFailedError, match=tag):
        bench.push()


@pytest.mark.parametrize("recorded", [False, True])
def test_two_images_under_one_immutable_tag(bench: Bench, recorded: bool) -> None:
    """Who finds another image there gives way; the record decides if there is one."""

    def rival() -> None:
        digest = place_image(bench.registry, "rival", FIRST)
        if recorded:
            mine = Bench(bench.image).push().record
            bench.put(replace(mine, digest=digest, image_id=id_of("rival")))
            place_image(bench.registry, "one", FIRST)

    bench.at(f"manifest {FIRST}", lambda: bench.at(f"manifest {FIRST}", rival))
    with pytest.raises(CheckFailedError, match=FIRST):
        bench.push()
    assert bench.at_first() == id_of("rival")
    assert not {*MOVING} & {*bench.registry.tagged}


def test_another_image_that_is_recorded_while_the_tags_move_gets_its_tag_back(bench: Bench) -> None:
    def rival() -> None:
        digest = place_image(bench.registry, "rival", "any")
        bench.put(replace(bench.record(), digest=digest, image_id=id_of("rival")))

    bench.at(f"put {MOVING[1]}", rival)
    with pytest.raises(CheckFailedError, match=FIRST):
        bench.push()
    assert bench.at_first() == id_of("rival")


def test_two_pushes_of_one_image_at_once_are_no_conflict(bench: Bench) -> None:
    def later() -> None:
        bench.put(replace(bench.record(), published="2026-11-21T00:00:00Z"))

    bench.at(f"put {input_of('one')}", later)
    assert bench.push().steps[0] == "push"


@pytest.mark.parametrize("days", [-1, 365])
def test_a_clock_that_was_set_leaves_the_moving_tags_at_the_latest_image(
    bench: Bench, days: int
) -> None:
    """Back by a day it refuses; forward by a year it is the others that do, until it is named."""
    right = datetime(2026, 11, 20, 12, tzinfo=UTC)
    wrong = right + timedelta(days=days)
    first, second = (right, wrong) if days < 0 else (wrong, right)

    def pushed(content: str, now: datetime, release: str | None = None) -> PushedImage:
        session = replace(bench.session(release), now=lambda: now)
        return session.push(
            bench.candidate(content), lambda tag: bench.upload(content, tag), documents
        )

    one = pushed("one", first).record
    with pytest.raises(CheckFailedError, match="clock"):
        pushed("two", second)
    assert {bench.registry.tagged[tag] for tag in MOVING} == {one.digest}
    assert pushed("one", second).steps == (), "what is there is known by its id"
    assert pushed("two", second, f"{first:%Y%m%d}.2").moves == MOVING
