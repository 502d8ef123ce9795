"""Which images on the engine are imgbuild's, and which of them nobody needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fake_engine import FakeEngine

from imgbuild.cleaning.images import Images, Wanted
from imgbuild.cleaning.kinds import Kind
from imgbuild.engine.types import HistoryEntry, StoredImage

if TYPE_CHECKING:
    from imgbuild.cleaning.finding import Finding

EPOCH = 1793491200
NAME, REPOSITORY = "tf-2.2-cpu-debian", "imgbuild/tensorflow"
TAG = f"{REPOSITORY}:2.2-cpu-debian"
CURRENT, OTHER = "sha256:current", "sha256:other"
WANTED = Wanted(REPOSITORY, {NAME: CURRENT})
DIGITS = "0123456789ab"


def image(number: int, digest: str = CURRENT, *tags: str, **changes: Any) -> StoredImage:
    labels = {
        "imgbuild.name": NAME,
        "imgbuild.input-digest": digest,
        "imgbuild.repository": REPOSITORY,
        "org.opencontainers.image.created": "2026-11-01T00:00:00Z",
        **changes.pop("labels", {}),
    }
    created = changes.pop("created", EPOCH)
    return StoredImage(f"sha256:{number:064x}", tags, labels, 1000, created)


def found(engine: FakeEngine, **options: Any) -> list[Finding]:
    options = {"ask": lambda: WANTED, "busy": {}, "mine": lambda _: True, **options}
    return list(Images(engine, **options).find())


def kinds(engine: FakeEngine, **options: Any) -> list[str]:
    return [finding.kind for finding in found(engine, **options)]


def test_a_nameless_image_that_is_not_current_is_dangling_and_is_removed() -> None:
    engine = FakeEngine([image(1, OTHER), image(2, CURRENT)])
    (finding,) = found(engine)
    assert finding.kind == Kind.DANGLING
    assert finding.size == 1000
    assert NAME in finding.name
    assert finding.remove()
    assert [*engine.stored] == [image(2).id]


def test_a_nameless_image_that_others_may_be_testing_stays() -> None:
    """They share the engine and the repository, and have another state folder."""
    engine = FakeEngine([image(1, OTHER), image(2, OTHER), image(3, CURRENT)])
    mine = {"mine": lambda image_id: image_id == image(1).id}
    (finding,) = found(engine, **mine)
    assert image(1).id[7:19] in finding.name
    assert finding.why == "nameless, and not current"
    _, theirs = found(engine, **mine, elsewhere=True)
    assert theirs.why == "nameless, not current, and not tested by this state folder"


def test_what_somebody_built_on_top_inherits_the_labels_and_stays() -> None:
    """A nameless one and a named one: both carry every label, and another time."""
    later = EPOCH + 100
    theirs = [image(1, OTHER, created=later), image(2, OTHER, "app:1", created=later)]
    assert kinds(FakeEngine(theirs), elsewhere=True) == []


LABEL = f"LABEL org.opencontainers.image.title={NAME} imgbuild.name={NAME}"
OURS = ['CMD ["/bin/bash"]', 'ENTRYPOINT ["init"]', LABEL, "RUN x"]


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ([], [Kind.DANGLING]),
        (["ENV THEIRS=1"], []),
        (['CMD ["theirs"]'], []),
        (["LABEL x=1", "CMD x"], []),
    ],
)
def test_an_image_that_adds_no_layer_is_known_by_its_history(
    more: list[str], found: list[str]
) -> None:
    """It has the labels and the time of the image that it is from."""
    engine = FakeEngine([image(1, OTHER)])
    engine.histories[image(1).id] = [HistoryEntry(one) for one in (*more, *OURS)]
    assert kinds(engine) == found


def test_images_without_labels_stay() -> None:
    foreign = [StoredImage("sha256:1"), StoredImage("sha256:2", ("debian:12",))]
    assert kinds(FakeEngine(foreign), elsewhere=True) == []


def test_an_image_without_a_readable_time_stays() -> None:
    odd = {"org.opencontainers.image.created": "yesterday"}
    assert kinds(FakeEngine([image(1, OTHER, labels=odd)])) == []


def test_a_name_that_somebody_else_gave_stays() -> None:
    engine = FakeEngine([image(1, CURRENT, TAG, "mine:1")])
    (finding,) = found(engine)
    assert (finding.kind, finding.name) == (Kind.IMAGES, TAG)
    assert finding.remove()
    assert engine.stored[image(1).id].tags == ("mine:1",)
    assert kinds(engine) == [], "it is theirs now"


def test_a_named_image_is_old_only_beside_a_newer_one() -> None:
    old = image(1, OTHER, f"{REPOSITORY}:2.2.0-cpu-debian")
    assert kinds(FakeEngine([old])) == [Kind.IMAGES]
    assert kinds(FakeEngine([old, image(2)])) == [Kind.IMAGES]
    both = FakeEngine([old, image(2, CURRENT, TAG)])
    assert kinds(both) == [Kind.OLD, Kind.IMAGES]


def test_of_another_checkout_nothing_is_known_here() -> None:
    other = {"imgbuild.repository": "other/tensorflow"}
    engine = FakeEngine([image(1, OTHER, labels=other)])
    assert kinds(engine) == []
    (finding,) = found(engine, elsewhere=True)
    assert "another checkout (other/tensorflow)" in finding.why


def test_outside_a_checkout_nameless_images_stay() -> None:
    assert kinds(FakeEngine([image(1, OTHER)]), ask=Wanted) == []


def test_stand_ins_are_a_kind_of_their_own() -> None:
    labels = {"imgbuild.standin": "made up", "imgbuild.repository": "standin.invalid/x"}
    (finding,) = found(FakeEngine([image(1, OTHER, "standin.invalid/x:1", labels=labels)]))
    assert (finding.kind, finding.name) == (Kind.STANDINS, "standin.invalid/x:1")


def test_an_image_that_a_container_has_stays_with_all_its_names() -> None:
    engine = FakeEngine([image(1, CURRENT, TAG)])
    engine.used = {image(1).id}
    (finding,) = found(engine)
    assert not finding.remove()
    assert engine.stored[image(1).id].tags == (TAG,)


def test_an_image_at_work_is_kept() -> None:
    (finding,) = found(FakeEngine([image(1, OTHER)]), busy={f"unix-run-docker-sock-{NAME}": "77"})
    assert finding.kept == "process 77 is at work on it"


def test_what_is_wanted_is_asked_only_where_it_matters() -> None:
    def ask() -> Wanted:
        raise AssertionError

    assert kinds(FakeEngine([image(1, CURRENT, TAG)]), ask=ask) == [Kind.IMAGES]


def test_a_base_image_is_known_by_its_own_id_and_kept_while_it_is_used() -> None:
    own, other = f"imgbuild/base:debian-12-{DIGITS}", "imgbuild/base:debian-12-ffffffffffff"
    base = StoredImage(f"sha256:{DIGITS}{'0' * 52}", (own,), {}, 5)
    stranger = StoredImage(f"sha256:{'1' * 64}", (other,), {}, 5)
    engine = FakeEngine([base, stranger])
    (finding,) = found(engine)
    assert (finding.kind, finding.name) == (Kind.BASES, own)
    on_it = image(1, CURRENT, TAG, labels={"org.opencontainers.image.base.name": own})
    assert kinds(FakeEngine([base, stranger, on_it])) == [Kind.IMAGES]
    assert finding.remove()
    assert [*engine.stored] == [stranger.id]


def test_a_base_is_kept_if_a_build_has_begun_since_it_was_shown() -> None:
    own = f"imgbuild/base:debian-12-{DIGITS}"
    engine = FakeEngine([StoredImage(f"sha256:{DIGITS}{'0' * 52}", (own,), {}, 5)])
    busy: dict[str, str] = {}
    (finding,) = found(engine, now=lambda: busy)
    busy[NAME] = "17"
    assert not finding.remove()
    assert engine.stored
    busy.clear()
    assert finding.remove()


def cache_file(number: int, *tags: str, created: int = 315619200) -> StoredImage:
    return StoredImage(f"sha256:{number:064x}", tags, {"imgbuild.cache": "wheel-1"}, 10, created)


def test_files_of_a_cache_that_a_killed_build_left_go() -> None:
    engine = FakeEngine([cache_file(1, "registry.test/cache:wheel-1"), cache_file(2)])
    named, nameless = found(engine)
    assert (named.kind, named.name) == (Kind.CACHE_FILES, "registry.test/cache:wheel-1")
    assert "wheel-1, of a killed build" in named.why
    assert named.remove()
    assert nameless.remove()
    assert engine.stored == {}


def test_files_of_a_cache_stay_while_a_build_runs_and_those_of_others_always() -> None:
    (finding,) = found(FakeEngine([cache_file(1)]), busy={"tf-2.2-cpu-debian": "17"})
    assert finding.kept == "a build is running"
    assert found(FakeEngine([cache_file(1, created=EPOCH)])) == []
