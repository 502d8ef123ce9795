"""Publishing one image: in which order, what of it is done again, and who wins a race."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from memory_registry import MemoryRegistry

from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.publishing.approved import Approved
from imgbuild.publishing.content import config_digest, size_of
from imgbuild.publishing.foresee import foresee
from imgbuild.publishing.index import Index, update_index
from imgbuild.publishing.publish import Published, Publisher
from imgbuild.publishing.record import Record, SuiteFound, put_record, read_record
from imgbuild.registry.manifest import Manifest, digest_of

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image

NAME = "tf-2.2-cpu-debian"
STEM = "2.2.0-cpu-py36-openmpi4.1.4-debian12"
FIRST = f"{STEM}-20261120.1"
MOVING = ("2.2.0-cpu-debian", "2.2-cpu-debian")
SUITES = (SuiteFound("pins", "passed", 3, 0),)


def id_of(content: str) -> str:
    """Return the id of the image that `Bench.send` sends under this word."""
    return digest_of(json.dumps({"tag": content}).encode())


@dataclass
class Bench:
    """A registry, and an engine whose images are words."""

    image: Image
    registry: MemoryRegistry = field(default_factory=MemoryRegistry)
    day: int = 20
    checked: list[str] = field(default_factory=list)
    broken: bool = False

    def approved(self, content: str = "one", suites: tuple[SuiteFound, ...] = SUITES) -> Approved:
        digest = InputDigest(digest_of(content.encode()), {})
        item = PlanItem(self.image, digest, Action.NOTHING, "up to date", id_of(content))
        return Approved(item, id_of(content), suites, {"pins": {"verdict": "passed"}})

    def push(
        self,
        content: str = "one",
        *,
        index: Index | None = None,
        release: str | None = None,
        roll_back: bool = False,
        suites: tuple[SuiteFound, ...] = SUITES,
    ) -> Published:
        publisher = Publisher(
            registry=self.registry,
            index=update_index(self.registry, print) if index is None else index,
            tags=self.registry.tags,
            now=lambda: datetime(2026, 11, self.day, 10, tzinfo=UTC),
            send=lambda _, image_id, reference: self.send(content, image_id, reference),
            check=lambda _, said: self.checked.append(said),
            release=release,
            roll_back=roll_back,
        )
        self.registry.calls.clear()
        return publisher.publish(self.approved(content, suites))

    def send(self, content: str, image_id: str, reference: str) -> None:
        self.registry.calls.append("send")
        if self.broken:
            raise MachineError("the registry is away")
        assert image_id == id_of(content)
        place_image(self.registry, content, reference.removeprefix(f"{self.registry.name}:"))

    def like(self, digest: str) -> Record:
        """Return a record of the first release, of an image with this digest."""
        approved = self.approved()
        return Record(
            image=NAME,
            digest=digest,
            image_id=approved.image_id,
            size=1,
            release="20261120.1",
            tag=FIRST,
            moving=MOVING,
            input_digest=approved.item.digest.total,
            variant="cpu",
            stack="debian",
            pins={},
            suites=SUITES,
            report={},
            substitutes=(),
            published="2026-11-20T00:00:00Z",
        )

    def record(self, tag: str = FIRST) -> Record:
        found = read_record(self.registry, tag)
        assert found
        return found


def place_image(registry: MemoryRegistry, content: str, tag: str) -> str:
    """Put an image under a tag, as another's push does; return its digest."""
    before = dict(registry.tagged)
    digest = registry.add_image(content).digest
    registry.tagged.clear()
    registry.tagged |= {**before, tag: digest}
    return digest


@pytest.fixture
def bench(images: dict[str, Image]) -> Bench:
    return Bench(images[NAME])


def test_content_then_record_then_what_moves(bench: Bench) -> None:
    found = bench.push()
    assert found.done == ("pushed", "recorded", *(f"moved {tag}" for tag in MOVING))
    changes = [one for one in bench.registry.calls if one == "send" or one.startswith("put ")]
    tags = [one for one in changes if not one.startswith("put blob")]
    assert tags == ["send", f"put {FIRST}.record", *(f"put {tag}" for tag in MOVING)]
    digest = found.record.digest
    assert {bench.registry.tagged[tag] for tag in (FIRST, *MOVING)} == {digest}
    assert config_digest(bench.registry.manifests[digest]) == id_of("one")
    assert found.record == bench.record()
    assert (found.record.release, found.record.suites) == ("20261120.1", SUITES)
    assert bench.checked == ["20261120.1"]


def test_what_is_there_is_asked_for_by_head_alone(bench: Bench) -> None:
    bench.push()
    index = update_index(bench.registry, print)
    bench.day = 21
    found = bench.push(index=index)
    assert found.done == ()
    assert found.record.tag == FIRST
    assert {one.split()[0] for one in bench.registry.calls} == {"head"}
    assert len(bench.registry.calls) == len((FIRST, "record", *MOVING))


def test_another_image_gets_the_next_release(bench: Bench) -> None:
    bench.push("one")
    found = bench.push("two")
    assert found.record.tag == f"{STEM}-20261120.2"
    assert bench.registry.tagged[MOVING[1]] == found.record.digest
    assert bench.registry.tagged[FIRST] != found.record.digest


@pytest.mark.parametrize("call", [f"put {FIRST}.record", f"put {MOVING[0]}", f"put {MOVING[1]}"])
def test_what_was_cut_short_is_completed_as_it_was_begun(bench: Bench, call: str) -> None:
    """Also on another day, and by someone whose index says nothing of it."""

    def cut(asked: str) -> None:
        if asked == call:
            raise MachineError("cut off")

    bench.registry.before = cut
    with pytest.raises(MachineError, match="cut off"):
        bench.push()
    assert bench.registry.tagged.get(MOVING[1]) is None
    bench.registry.before = lambda _: None
    bench.day = 25
    found = bench.push(index=Index() if call.endswith(".record") else None)
    assert found.record.tag == FIRST
    assert "pushed" not in found.done
    assert {bench.registry.tagged[tag] for tag in (FIRST, *MOVING)} == {found.record.digest}


def test_content_that_does_not_arrive_moves_nothing(bench: Bench) -> None:
    bench.broken = True
    with pytest.raises(MachineError):
        bench.push()
    assert bench.registry.tagged == {}


def test_an_immutable_tag_is_never_overwritten(bench: Bench) -> None:
    other = place_image(bench.registry, "other", FIRST)
    with pytest.raises(CheckFailedError) as caught:
        bench.push(release="20261120.1")
    for word in (other, id_of("other"), id_of("one"), "never", "--release"):
        assert word in str(caught.value)
    assert bench.registry.tagged == {FIRST: other}
    assert "send" not in bench.registry.calls


def test_the_same_image_under_a_release_that_is_asked_for(bench: Bench) -> None:
    bench.push()
    found = bench.push(release="20261120.7")
    assert found.record.tag == f"{STEM}-20261120.7"
    assert bench.registry.tagged[FIRST] == found.record.digest


def test_a_tag_that_was_moved_meanwhile_is_left(bench: Bench) -> None:
    other = digest_of(b"no matter what")

    def move(asked: str) -> None:
        if asked == f"put {FIRST}.record":
            other_digest = place_image(bench.registry, "other", MOVING[1])
            bench.registry.blobs[other] = other_digest.encode()

    bench.registry.before = move
    with pytest.raises(CheckFailedError, match="moved by someone else") as caught:
        bench.push()
    theirs = bench.registry.blobs[other].decode()
    assert bench.registry.tagged[MOVING[1]] == theirs
    assert theirs in str(caught.value)
    bench.registry.before = lambda _: None
    found = bench.push()
    assert found.done == (f"moved {MOVING[1]}",)
    assert bench.registry.tagged[MOVING[1]] == found.record.digest


def test_an_immutable_tag_that_someone_moved_is_put_back(bench: Bench) -> None:
    digest = bench.push().record.digest
    index = update_index(bench.registry, print)
    place_image(bench.registry, "other", FIRST)
    found = bench.push(index=index)
    assert found.done == (f"put back {FIRST}",)
    assert bench.registry.tagged[FIRST] == digest


def test_a_newer_release_keeps_its_tags_unless_told_otherwise(bench: Bench) -> None:
    bench.push("one")
    bench.day = 21
    newer = bench.push("two").record
    assert bench.push("one").done == ()
    assert bench.registry.tagged[MOVING[1]] == newer.digest
    again = bench.push("one", release="20261120.1", suites=(*SUITES, *SUITES))
    assert again.done == ("recorded",)
    assert again.left == tuple(f"{tag} stays at {newer.tag}" for tag in MOVING)
    back = bench.push("one", roll_back=True, suites=(*SUITES, *SUITES))
    assert back.done == ("recorded", *(f"moved {tag}" for tag in MOVING))
    assert bench.registry.tagged[MOVING[1]] == back.record.digest


def test_what_was_rolled_back_stays_so(bench: Bench) -> None:
    bench.push("one")
    bench.day = 21
    bench.push("two")
    bench.day = 22
    back = bench.push("one", roll_back=True).record
    index = update_index(bench.registry, print, [back.tag])
    assert index.holders[MOVING[1]].digest == back.digest
    assert bench.push("one", roll_back=True, index=index).done == ()
    assert bench.push("two", index=index).done == ()
    assert bench.registry.tagged[MOVING[1]] == back.digest


def test_an_image_that_another_kind_of_engine_published_keeps_its_release(bench: Bench) -> None:
    """Its id there is the digest of its manifest."""
    published = bench.push().record
    index = update_index(bench.registry, print)
    publisher = Publisher(
        registry=bench.registry,
        index=index,
        tags=bench.registry.tags,
        now=lambda: datetime(2026, 11, 25, tzinfo=UTC),
        send=lambda *_: pytest.fail("it is there"),
        check=lambda *_: pytest.fail("it is there"),
    )
    found = publisher.publish(replace(bench.approved(), image_id=published.digest))
    assert found.record.tag == FIRST
    assert found.done == ()


def test_the_manifest_of_several_platforms_is_no_image() -> None:
    manifest = Manifest(digest_of(b"x"), "application/json", b'{"manifests": []}')
    with pytest.raises(CheckFailedError, match="several platforms"):
        size_of(manifest)


def test_suites_that_ran_since_are_recorded(bench: Bench) -> None:
    first = bench.push().record
    more = (*SUITES, SuiteFound("gpu_runs", "passed", 4, 0))
    bench.day = 22
    found = bench.push(suites=more)
    assert found.done == ("recorded",)
    assert (found.record.suites, found.record.published) == (more, first.published)


def test_a_damaged_record_is_written_anew(bench: Bench) -> None:
    bench.push()
    bench.registry.tagged[f"{FIRST}.record"] = bench.registry.tagged[FIRST]
    found = bench.push()
    assert found.done == ("recorded",)
    assert bench.record() == found.record


def test_of_two_images_under_one_tag_the_recorded_one_wins(bench: Bench) -> None:
    """Another imgbuild's content and record come after ours, before we look again."""
    theirs: list[Record] = []

    def overtake(asked: str) -> None:
        written = f"{FIRST}.record" in bench.registry.tagged
        if asked == f"manifest {FIRST}.record" and written and not theirs:
            digest = place_image(bench.registry, "other", FIRST)
            theirs.append(replace(bench.like(digest), image_id=id_of("other")))
            put_record(bench.registry, theirs[0])

    bench.registry.before = overtake
    with pytest.raises(CheckFailedError, match="published by someone else at the same time"):
        bench.push(release="20261120.1")
    assert bench.registry.tagged[FIRST] == theirs[0].digest == bench.record().digest
    assert not {*MOVING} & {*bench.registry.tagged}


def test_a_tag_that_another_took_is_given_back_by_who_lost(bench: Bench) -> None:
    """Their record was there first, ours overwrote their tag."""
    mine: list[str] = []

    def overtake(asked: str) -> None:
        written = f"{FIRST}.record" in bench.registry.tagged
        if asked == f"manifest {FIRST}.record" and written and not mine:
            mine.append(bench.registry.tagged[FIRST])
            put_record(
                bench.registry, bench.like(place_image(bench.registry, "other", "elsewhere"))
            )

    bench.registry.before = overtake
    with pytest.raises(CheckFailedError, match="published by someone else"):
        bench.push(release="20261120.1")
    assert bench.registry.tagged[FIRST] == bench.registry.tagged["elsewhere"] != mine[0]


@pytest.mark.parametrize("moment", [f"put {MOVING[0]}", f"head {MOVING[1]}", f"put {MOVING[1]}"])
def test_who_loses_the_record_while_the_tags_move_hands_them_over(
    bench: Bench, moment: str
) -> None:
    """Another image's push looked before our record was there, and puts its own over it."""
    theirs: list[Record] = []

    def overtake(asked: str) -> None:
        if asked == moment and f"put {FIRST}.record" in bench.registry.calls and not theirs:
            digest = place_image(bench.registry, "other", FIRST)
            theirs.append(replace(bench.like(digest), image_id=id_of("other")))
            put_record(bench.registry, theirs[0])

    bench.registry.before = overtake
    with pytest.raises(CheckFailedError, match="published by someone else at the same time"):
        bench.push(release="20261120.1")
    assert {bench.registry.tagged[tag] for tag in (FIRST, *MOVING)} == {theirs[0].digest}
    assert bench.record() == theirs[0]


def test_who_loses_the_record_and_finds_a_tag_moved_hands_over_the_other(bench: Bench) -> None:
    """The other image's push moves the second tag before we do."""
    theirs: list[Record] = []

    def overtake(asked: str) -> None:
        if asked == f"put {MOVING[0]}" and not theirs:
            digest = place_image(bench.registry, "other", FIRST)
            theirs.append(replace(bench.like(digest), image_id=id_of("other")))
            put_record(bench.registry, theirs[0])
            bench.registry.tagged[MOVING[1]] = digest

    bench.registry.before = overtake
    with pytest.raises(CheckFailedError, match="published by someone else at the same time"):
        bench.push(release="20261120.1")
    assert {bench.registry.tagged[tag] for tag in (FIRST, *MOVING)} == {theirs[0].digest}


def test_what_was_published_while_the_content_was_sent_stays(bench: Bench) -> None:
    """Another imgbuild's push begins after ours and ends before: it took the release."""
    theirs: list[Record] = []

    def overtake(asked: str) -> None:
        if asked == f"manifest {FIRST}" and "send" in bench.registry.calls and not theirs:
            digest = place_image(bench.registry, "other", "elsewhere")
            theirs.append(replace(bench.like(digest), image_id=id_of("other")))
            put_record(bench.registry, theirs[0])

    bench.registry.before = overtake
    with pytest.raises(CheckFailedError, match="published by someone else at the same time"):
        bench.push(release="20261120.1")
    assert bench.registry.tagged[FIRST] == theirs[0].digest
    assert bench.record() == theirs[0]
    assert not {*MOVING} & {*bench.registry.tagged}


def test_what_would_be_done(bench: Bench) -> None:
    def foreseen(index: Index | None = None) -> tuple[str, ...]:
        publisher = Publisher(
            registry=bench.registry,
            index=index or update_index(bench.registry, print),
            tags=bench.registry.tags,
            now=lambda: datetime(2026, 11, 20, tzinfo=UTC),
            send=lambda *_: pytest.fail("nothing is sent"),
            check=lambda *_: pytest.fail("nothing is started"),
        )
        bench.registry.calls.clear()
        return foresee(publisher, bench.approved()).to_do

    assert foreseen() == ("push", "record", *(f"move {tag}" for tag in MOVING))
    bench.push()
    assert foreseen() == ()
    del bench.registry.tagged[MOVING[1]]
    assert foreseen() == (f"move {MOVING[1]}",)
    index = update_index(bench.registry, print)
    place_image(bench.registry, "other", FIRST)
    bench.registry.tagged[f"{FIRST}.record"] = bench.registry.tagged[MOVING[0]]
    with pytest.raises(CheckFailedError, match="for another image"):
        foreseen(index)
    assert not [one for one in bench.registry.calls if one.startswith("put")]


def test_cut_off_at_any_call_another_push_completes_it(bench: Bench) -> None:
    """Each call of a whole push fails in its turn; no tag moves before its record is there."""
    cut = 0
    while _is_cut(bench, cut):
        if {*MOVING} & {*bench.registry.tagged}:
            assert bench.record().digest == bench.registry.tagged[FIRST]
        bench.day = 21
        again = bench.push().record
        index = update_index(bench.registry, print, [again.tag])
        assert {*bench.registry.tagged} == {again.tag, f"{again.tag}.record", *MOVING, "index"}
        assert {bench.registry.tagged[tag] for tag in MOVING} == {again.digest}
        assert index.records == (again.brief,)
        assert bench.push(index=index).done == ()
        cut += 1
    assert cut > 20


def _is_cut(bench: Bench, at: int) -> bool:
    """Push to an empty registry that fails from a call on; return whether it came to that."""
    bench.registry, bench.day = MemoryRegistry(before=_Cut(at)), 20
    try:
        update_index(bench.registry, print, [bench.push(index=Index()).record.tag])
    except MachineError:
        bench.registry.before = lambda _: None
        return True
    return False


class _Cut:
    """Fails at the n-th call, and at all that follow."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, call: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise MachineError(f"{call}: the registry is away")
