"""What killed test runs left on the engine, and the build cache."""

from __future__ import annotations

from fake_engine import FakeEngine

from imgbuild.cleaning.build_cache import find_build_cache, mount_id
from imgbuild.cleaning.kinds import Kind
from imgbuild.cleaning.leftovers import Place, find_leftovers
from imgbuild.engine.types import BuildCacheRecord, StoredImage, StoredNetwork, StoredVolume

MINE = {"imgbuild.test-of": "tf-2.2-cpu-debian@here"}
THEIRS = {"imgbuild.test-of": "tf-2.2-cpu-debian@there"}
#: What a container of a user has: the labels of its image, and none of a test run.
USERS = {"imgbuild.name": "tf-2.2-cpu-debian"}
UV = 'cached mount /root/.cache/uv from exec /bin/sh -c uv with id "/imgbuild-uv"'


def _engine() -> FakeEngine:
    engine = FakeEngine([StoredImage("sha256:1")])
    for labels in (MINE, THEIRS, USERS):
        engine.start("sha256:1", command=["sleep"], labels=labels)
        engine.nets[str(labels)] = StoredNetwork(str(labels), labels)
        engine.kept_volumes.append(StoredVolume(str(labels), labels))
    return engine


def test_what_this_state_folder_left_is_removed_and_nothing_else() -> None:
    engine = _engine()
    findings = list(find_leftovers(engine, Place("here", {})))
    assert [one.kind for one in findings] == [Kind.CONTAINERS, Kind.NETWORKS, Kind.VOLUMES]
    assert all(one.remove() for one in findings)
    assert [one.labels for one in engine.running.values()] == [THEIRS, USERS]
    assert [one.labels for one in engine.nets.values()] == [THEIRS, USERS]
    assert [one.labels for one in engine.kept_volumes] == [THEIRS, USERS]


def test_what_others_left_is_taken_when_asked_for() -> None:
    findings = list(find_leftovers(_engine(), Place("here", {}, elsewhere=True)))
    assert len(findings) == 6
    assert [one.image for one in findings[:2]] == ["tf-2.2-cpu-debian", None]
    assert "another state folder (there)" in findings[1].why


def test_what_a_running_test_uses_is_kept() -> None:
    busy = {"default-tf-2.2-cpu-debian": "77"}
    findings = list(find_leftovers(_engine(), Place("here", busy)))
    assert {one.kept for one in findings} == {"process 77 tests it now"}


def test_only_a_cache_mount_whose_id_is_imgbuilds_is_its_own() -> None:
    def record(kind: str, description: str) -> BuildCacheRecord:
        return BuildCacheRecord("a", kind, description, 1)

    assert mount_id(record("exec.cachemount", UV)) == "imgbuild-uv"
    assert not mount_id(record("regular", UV))
    assert not mount_id(record("exec.cachemount", UV.replace("/imgbuild-uv", "/pip")))
    assert not mount_id(record("exec.cachemount", UV + ' with id "/pip"'))
    assert not mount_id(record("exec.cachemount", UV + " and more"))


def test_cache_mounts_go_one_by_one_and_the_whole_cache_as_one() -> None:
    engine = FakeEngine()
    engine.records = [
        BuildCacheRecord("uv", "exec.cachemount", UV, 10),
        BuildCacheRecord("busy", "exec.cachemount", UV.replace("-uv", "-apt"), 10, in_use=True),
        BuildCacheRecord("other", "regular", "RUN make", 5),
    ]
    uv, apt, whole = find_build_cache(engine)
    assert (uv.name, uv.kept, apt.kept) == ("imgbuild-uv", None, "a build uses it now")
    assert uv.remove()
    assert not apt.remove()
    assert [one.id for one in engine.records] == ["busy", "other"]
    assert (whole.kind, whole.size) == (Kind.BUILD_CACHE, 25)
    assert whole.remove()
    assert [one.id for one in engine.records] == ["busy"]


def test_an_empty_build_cache_is_not_shown() -> None:
    assert list(find_build_cache(FakeEngine())) == []
