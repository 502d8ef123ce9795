"""What `imgbuild clean` finds, removes and keeps; on a real engine in tests/e2e/test_clean.py."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import Result

from imgbuild.build.context import image_locks
from imgbuild.build.image_build import TEMPORARY_NAMES
from imgbuild.core.errors import MachineError
from imgbuild.core.files import ensure_folder
from imgbuild.dockerfile.labels import EXTENDS
from imgbuild.engine.types import StoredImage
from imgbuild.maintain.cleanup import CleanupKind, find_garbage, remove_garbage
from imgbuild.publish.upload import note_path
from imgbuild.suites.container import CONTAINER_LABEL, machine_digest
from imgbuild.suites.store import ReportStore
from support.fake_engine import FakeEngine
from support.project_copy import ROOT, invoke

EPOCH = 1793491200
NAME, REPOSITORY = "tf-2.2-cpu-debian", "imgbuild/tensorflow"
TAG = f"{REPOSITORY}:2.2-cpu"
HOST = "unix:///nowhere.sock"
DIGITS = "0123456789ab"


def image(number: int, *tags: str, repository: str = REPOSITORY) -> StoredImage:
    labels = {
        "imgbuild.name": NAME,
        "imgbuild.input-digest": "sha256:a",
        "imgbuild.repository": repository,
        "org.opencontainers.image.created": "2026-11-01T00:00:00Z",
    }
    return StoredImage(f"sha256:{number:064x}", tags, labels, 1000, EPOCH)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "imgbuild"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: Path) -> FakeEngine:
    """Return an engine with an image without a tag, whose tests failed here, and a tagged one."""
    made = FakeEngine([image(1), image(2, TAG)])
    made.host = HOST
    monkeypatch.setattr("imgbuild.engine.client.Engine", lambda _: made)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", HOST)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
    monkeypatch.setenv("IMGBUILD_PROJECT", str(ROOT))
    monkeypatch.setenv("IMGBUILD_SETTINGS", str(tmp_path / "settings.yaml"))
    (tmp_path / "settings.yaml").touch()
    ReportStore(state / "reports").import_results(image(1).id, {})
    return made


def run(*options: str) -> Result:
    return invoke("clean", *options, env={})


def listed(*options: str) -> list[str]:
    return [one["name"] for one in json.loads(run("--json", *options).stdout)]


def test_what_others_test_or_built_on_top_stays(engine: FakeEngine) -> None:
    """They share the engine and have another state folder; labels are inherited."""
    engine.stored[image(3).id] = image(3)
    assert len(listed()) == 1
    assert len(listed("--elsewhere")) == 2
    for tags in ((), ("app:1",)):
        engine.stored = {image(1).id: replace(image(1, *tags), created=EPOCH + 100)}
        assert listed("--elsewhere", "--images") == []
    assert "--only everything: " in str(run("--only", "everything").exception)


def test_tags_that_others_gave_stay_and_own_base_images_go(engine: FakeEngine, state: Path) -> None:
    base, base_id = "imgbuild/base", f"sha256:{DIGITS}{'0' * 52}"
    own = StoredImage(base_id, (f"{base}:debian-12-{DIGITS}",), {}, 5)
    stranger = StoredImage("sha256:x", (f"{base}:debian-12-other",), {}, 5)
    theirs = (image(2, TAG, "mine:1"), image(3, "theirs:1"), stranger)
    engine.stored = {one.id: one for one in (*theirs, own)}
    ReportStore(state / "reports").import_results(image(3).id, {})
    assert listed("--images") == [TAG, own.tags[0]]
    run("--images", "--yes")
    left = {one.tags for one in engine.stored.values()}
    assert left == {("mine:1",), ("theirs:1",), stranger.tags}


def test_images_of_another_repository_are_another_checkout_s(
    engine: FakeEngine, edited: Callable[..., Path]
) -> None:
    team, standin = "team/tensorflow", f"standin.invalid/{REPOSITORY}"
    for number, repository in ((3, team), (4, standin)):
        one = image(number, f"{repository}:2.2-cpu", repository=repository)
        engine.stored[one.id] = one
    ours = ("--only", "images", "--project", str(edited(REPOSITORY, REPOSITORY).parent))
    own, theirs = [TAG, f"{standin}:2.2-cpu"], [f"{team}:2.2-cpu"]
    assert listed(*ours) == own
    assert sorted(listed(*ours, "--elsewhere")) == sorted([*own, *theirs])
    edited(f"repository: {REPOSITORY}", f"repository: {team}")
    assert listed(*ours) == theirs
    run(*ours, "--yes")
    assert {*engine.stored} == {image(number).id for number in (1, 2, 4)}


def test_clean_removes_images_that_adopt_named(engine: FakeEngine, state: Path) -> None:
    labels = {**image(1).labels, EXTENDS: NAME}
    adopted = replace(image(3, "adopted/churn:1", "me/churn:1"), labels=labels)
    theirs = replace(image(4, "adopted/other:1"), labels=labels)
    extended = replace(image(5, "local/churn:1"), labels=labels)
    engine.stored = {stored.id: stored for stored in (adopted, theirs, extended)}
    store = ReportStore(state / "reports")
    for stored in (adopted, extended):
        store.record_extension(stored.id, NAME, None, None, cached_base=False)
    assert listed("--only", "images") == ["adopted/churn:1"]
    assert listed("--only", "images", "--elsewhere") == ["adopted/churn:1", "adopted/other:1"]
    run("--images", "--yes")
    left = {stored.tags for stored in engine.stored.values()}
    assert left == {("me/churn:1",), ("adopted/other:1",), ("local/churn:1",)}


@pytest.mark.usefixtures("engine")
def test_a_builder_of_the_settings_that_is_gone_only_keeps_its_cache(tmp_path: Path) -> None:
    buildx = tmp_path / "docker-buildx"
    buildx.write_text("#!/bin/sh\n[ $1 = version ] && echo github.com/docker/buildx v1 c\n")
    buildx.chmod(0o755)
    settings = json.dumps({"engine": {"builder": "gone", "buildx": str(buildx)}})
    (tmp_path / "settings.yaml").write_text(settings, encoding="utf-8")
    assert run().exit_code == 0
    assert run("--build-cache").exit_code != 0


def test_an_image_that_imgbuild_works_on_stays(engine: FakeEngine, state: Path) -> None:
    before = find_garbage(engine, state, state)
    untagged = [finding for finding in before if finding.kind is CleanupKind.UNTAGGED]
    with image_locks([NAME], HOST, state / "locks"):
        assert f"kept: process {os.getpid()} " in run("--yes").output
        (late,) = remove_garbage(untagged, engine, state)
        assert late.blocked_by
    assert len(engine.stored) == 2
    assert run("--yes").exit_code == 0
    assert len(engine.stored) == 1


def test_clean_locks_no_path_that_a_label_names(engine: FakeEngine, state: Path) -> None:
    """Anybody's image can have the label, and its containers inherit it."""
    named = replace(image(1), labels={**image(1).labels, "imgbuild.name": "../../../named"})
    engine.stored = {named.id: named}
    mine = {CONTAINER_LABEL: f"../../../tested@{machine_digest(state)}"}
    engine.start(named.id, command=["sleep"], labels=mine)
    run("--yes")
    assert engine.running == {}
    folders = {path.parent for path in state.parent.parent.rglob("*.lock")}
    assert folders == {state / "locks"}


def test_clean_removes_temporary_names(engine: FakeEngine, state: Path) -> None:
    """Of this state folder: another's build may be at work."""
    mine = f"{TEMPORARY_NAMES}:{machine_digest(state)}-1"
    other = f"{TEMPORARY_NAMES}:{'0' * 12}-1"
    own = StoredImage("sha256:own", ("me/own:1", mine, other))
    engine.stored = {own.id: own}
    with image_locks(["me-train-1"], HOST, state / "locks"):
        run("--yes")
        assert engine.stored[own.id].tags == own.tags
    run("--yes")
    assert engine.stored[own.id].tags == ("me/own:1", other)


def test_the_temporary_tag_of_a_killed_push_goes(engine: FakeEngine, state: Path) -> None:
    tag = "registry.test/app:2.2.0-20261120.1"
    engine.tag(image(2).id, tag)
    path = _write(note_path(state, engine, NAME))
    path.write_text(json.dumps({"image_id": image(2).id, "reference": tag}))
    assert run("--yes", "--only", "leftovers").exit_code == 0
    assert (engine.stored[image(2).id].tags, path.exists()) == ((TAG,), False)


def _write(path: Path, days: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    then = time.time() - days * 86400
    os.utime(path, (then, then))
    return path


def test_work_folders_of_dead_processes_go_and_of_living_ones_stay(
    engine: FakeEngine, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no engine answers."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
    dead = _write(state / "work" / f"{process.pid}-bake-x" / "bake.json").parent
    living = _write(state / "work" / f"{os.getpid()}-bake-x" / "bake.json").parent
    cache = tmp_path / "cache" / "imgbuild"
    half = _write(cache / "base" / ".debian-12.tmp-abc" / "new" / "x").parents[1]
    assert listed("--only", "work") == sorted([str(half), str(dead)])

    def refuse() -> None:
        raise MachineError("The engine cannot be used.")

    monkeypatch.setattr(engine, "version", refuse)
    assert run("--yes").exit_code == 0
    assert (dead.exists(), half.exists(), living.exists()) == (False, False, True)
    seen: list[int] = []
    ensure_folder(
        cache / "base" / "one",
        lambda _: seen.append(len(listed("--only", "work"))),
        lambda _: False,
    )
    assert seen == [0], "a folder that is being made stays"


@pytest.mark.usefixtures("engine")
def test_old_logs_and_scratch_folders_of_this_user_go(state: Path, tmp_path: Path) -> None:
    for name, days in (("old", 31), ("older", 90), ("young", 29)):
        _write(state / "logs" / f"{name}.log", days)
    name = f"imgbuild-{os.getuid()}-debian-12-{DIGITS}-"
    for folder, hours in ((f"{name}aaaaaaaa", 2), (f"{name}bbbbbbbb", 0), ("imgbuild-0-mine", 2)):
        path = tmp_path / "tmp" / folder
        path.mkdir(parents=True)
        then = time.time() - hours * 3600
        os.utime(path, (then, then))
    old = {f"2 logs in {state / 'logs'}", str(tmp_path / "tmp" / f"{name}aaaaaaaa")}
    assert {*listed("--only", "work")} == old
    assert run("--yes", "--only", "work").exit_code == 0
    assert [one.stem for one in (state / "logs").iterdir()] == ["young"]
    assert len([*(tmp_path / "tmp").iterdir()]) == 2
