"""The bake definition, and running bake with a program that plays buildx."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import fake_buildx
import pytest

from imgbuild.engine.bake import (
    BakeCancelledError,
    BakeTarget,
    BuiltImage,
    bake_definition,
    run_bake,
)
from imgbuild.engine.discovery import Buildx
from imgbuild.engine.failure import BuildFailedError, BuildStoppedError
from imgbuild.engine.progress import BakeBegun, BakeEvent, BuildEvent
from imgbuild.errors import MachineError
from waiting import is_running, wait_for

SAMPLES = fake_buildx.SAMPLES
FAMILY = ("tf-2.2-cpu", "tf-2.3-cpu")
BUILT = fake_buildx.metadata("tf-2_2-cpu", "tf-2_3-cpu")


def bake(
    buildx: Buildx, folder: Path, names: tuple[str, ...] = FAMILY
) -> tuple[dict[str, BuiltImage], list[BuildEvent]]:
    targets = [BakeTarget(name, folder, folder / "Dockerfile") for name in names]
    events: list[BakeEvent] = []
    log = folder / "logs" / "build.log"
    host = "unix:///run/test.sock"
    built = run_bake(buildx, host, targets, log=log, listener=events.append, epoch=7)
    assert events[:1] in ([], [BakeBegun(names)])
    return built, [event for event in events if isinstance(event, BuildEvent)]


def test_built_images_have_their_ids_and_everything_is_in_the_log(tmp_path: Path) -> None:
    buildx = fake_buildx.replaying(tmp_path, SAMPLES / "ok", built=BUILT)
    images, events = bake(buildx, tmp_path)
    for image in images.values():
        assert image == BuiltImage(fake_buildx.IMAGE, image.seconds, image.work)
        assert 0.3 < (image.seconds or 0) < 5
        assert 0.3 < image.work < 5
    assert {event.target for event in events} == {None, *FAMILY}
    log = (tmp_path / "logs" / "build.log").read_text()
    assert "Z [tf-2.2-cpu] #10 hello tf-2.2-cpu\n" in log
    assert "#11 exporting to image (done after 0.0 s)\n" in log


def test_an_image_is_told_of_when_its_export_has_ended(tmp_path: Path) -> None:
    """Before buildx writes the ids, which are others in this test."""
    told: dict[str, BuiltImage] = {}
    buildx = fake_buildx.replaying(tmp_path, SAMPLES / "ok", built=BUILT)
    targets = [BakeTarget(name, tmp_path, tmp_path / "Dockerfile") for name in FAMILY]
    log, ids = tmp_path / "log", ["sha256:ed2e7ece", "sha256:5a2d0643"]
    run_bake(buildx, None, targets, log=log, listener=lambda _: None, exported=told.__setitem__)
    assert sorted(told) == sorted(FAMILY)
    assert sorted(image.image_id[:15] for image in told.values()) == sorted(ids)
    assert all(image.seconds for image in told.values())


def test_the_engine_and_nothing_else_of_the_environment_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "elsewhere")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "99")
    bake(fake_buildx.replaying(tmp_path, SAMPLES / "ok", built=BUILT), tmp_path)
    seen = fake_buildx.seen(tmp_path)
    assert seen["env"]["DOCKER_HOST"] == "unix:///run/test.sock"
    assert seen["env"]["BUILDX_NO_DEFAULT_ATTESTATIONS"] == "1"
    assert not {"DOCKER_CONTEXT", "SOURCE_DATE_EPOCH"} & {*seen["env"]}
    assert seen["argv"][:3] == ["bake", "--builder=default", "--progress=rawjson"]


def test_a_failure_names_target_step_and_error(tmp_path: Path) -> None:
    buildx = fake_buildx.replaying(tmp_path, SAMPLES / "fail", code=1)
    with pytest.raises(BuildFailedError) as caught:
        bake(buildx, tmp_path, ("tf-2.2-cpu", "bad"))
    failure = caught.value.failure
    assert (failure.failed, failure.cancelled) == (("bad",), ("tf-2.2-cpu",))
    assert failure.step.startswith("[horovod 1/2] RUN ")
    assert failure.error == "exit code: 7"
    assert len(failure.tail) == 20
    assert failure.tail[-1] == "line 25"
    for said in ("Building bad failed", "not faulty: tf-2.2-cpu", "logs/build.log", "line 25"):
        assert said in str(caught.value)


def test_a_shared_step_fails_all_who_share_it(tmp_path: Path) -> None:
    buildx = fake_buildx.replaying(tmp_path, SAMPLES / "sharedfail", code=1)
    with pytest.raises(BuildFailedError) as caught:
        bake(buildx, tmp_path)
    assert caught.value.failure.failed == FAMILY
    assert caught.value.failure.cancelled == ()


def test_success_without_an_image_id_is_an_error(tmp_path: Path) -> None:
    built = fake_buildx.metadata("tf-2_2-cpu")
    with pytest.raises(MachineError, match=r"tf-2\.3-cpu"):
        bake(fake_buildx.replaying(tmp_path, SAMPLES / "ok", built=built), tmp_path)


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (
            "target tf-2_2-cpu: failed to solve: Unavailable: error reading from server: EOF",
            BuildStoppedError,
            "stopped during the build",
        ),
        ("invalid progress mode rawjson", BuildStoppedError, "Install a newer one"),
        ("it broke", BuildFailedError, "it broke"),
    ],
)
def test_the_words_of_buildx_say_whose_fault_it_is(
    tmp_path: Path, words: str, kind: type[Exception], said: str
) -> None:
    odd = '{"vertexes": 3}'
    (tmp_path / "lost.rawjson").write_text(f"{odd}\n\x00\n#7\nERROR: {words}\n")
    with pytest.raises(kind, match=said):
        bake(fake_buildx.replaying(tmp_path, tmp_path / "lost", code=1), tmp_path)
    assert odd in (tmp_path / "logs" / "build.log").read_text(), "unknown lines are kept"


def test_a_lost_layer_that_cannot_be_forgotten_is_an_error(tmp_path: Path) -> None:
    lost = (
        "ERROR: failed to solve: failed to prepare a9bgam as xnxbaj: invalid output path: stat "
        "/docker/overlay2/4iay: no such file or directory\n"
    )
    (tmp_path / "lost.rawjson").write_text(lost)
    with pytest.raises(BuildStoppedError, match="docker builder prune --all"):
        bake(fake_buildx.replaying(tmp_path, tmp_path / "lost", code=1), tmp_path)


def wait_for_death(folder: Path) -> None:
    """Wait until none of the fake's two processes runs."""
    pids = [int(word) for word in (folder / "pids").read_text().split()]
    wait_for(lambda: not any(map(is_running, pids)), 5)


def test_an_error_of_the_display_leaves_no_process(tmp_path: Path) -> None:
    def broken(event: BakeEvent) -> None:
        if isinstance(event, BuildEvent):
            raise UnicodeError

    target = BakeTarget("one", tmp_path, tmp_path / "Dockerfile")
    buildx = fake_buildx.hanging(tmp_path)
    with pytest.raises(UnicodeError):
        run_bake(buildx, None, [target], log=tmp_path / "log", listener=broken)
    wait_for_death(tmp_path)


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_build_that_is_to_stop_leaves_no_process(tmp_path: Path, seconds: int) -> None:
    """Soon, though it says nothing and no step is over its limit, or has none."""
    target = BakeTarget("one", tmp_path, tmp_path / "Dockerfile")
    buildx = replace(fake_buildx.hanging(tmp_path), step_seconds=seconds)
    stop = threading.Event()

    def begun(event: BakeEvent) -> None:
        if isinstance(event, BuildEvent):
            threading.Timer(0.3, stop.set).start()

    log = tmp_path / "log"
    with pytest.raises(BakeCancelledError):
        run_bake(buildx, None, [target], log=log, listener=begun, stopped=stop.is_set)
    wait_for_death(tmp_path)


def test_another_builder_is_named_and_its_images_go_by_what_the_engine_loaded(
    tmp_path: Path,
) -> None:
    """Not by what buildx tells of it, which a graph driver does not know."""
    buildx = fake_buildx.replaying(tmp_path, SAMPLES / "ok", built=BUILT)
    targets = [BakeTarget(name, tmp_path, tmp_path / "Dockerfile") for name in FAMILY]
    events: list[BakeEvent] = []
    there = replace(buildx, builder="farm")
    built = run_bake(there, None, targets, log=tmp_path / "log", listener=events.append)
    assert fake_buildx.IMAGE not in {image.image_id for image in built.values()}
    assert "--builder=farm" in fake_buildx.seen(tmp_path)["argv"]
    assert events[0] == BakeBegun(FAMILY, "farm")


def test_a_silent_build_is_stopped(tmp_path: Path) -> None:
    buildx = replace(fake_buildx.hanging(tmp_path, words=""), step_seconds=1)
    with pytest.raises(
        BuildFailedError, match="the engine said nothing for more than 1s"
    ) as caught:
        bake(buildx, tmp_path)
    assert (caught.value.exit_code, caught.value.failure.failed) == (3, FAMILY)


def family() -> list[BakeTarget]:
    return [
        BakeTarget(
            name="tf-2.2-cpu-debian",
            context=Path("/checkout/images/files"),
            dockerfile=Path("/checkout/images/dockerfiles/tf-2.2-cpu-debian/Dockerfile"),
            contexts={"python": "/prefix", "base": "docker-image://base:1"},
            args={"PIP_INDEX_URL": "https://index.example/simple"},
            labels={"org.opencontainers.image.title": "costs ${nothing} or %{nothing}"},
            secrets=("id=ca,src=/ca.pem",),
            target="final",
        ),
        BakeTarget(
            name="derived-1.0",
            context=Path("/c"),
            dockerfile=Path("/c/Dockerfile"),
            contexts={"base": "target:tf-2.2-cpu-debian"},
            output="type=local,dest=/out",
        ),
    ]


def test_the_definition_is_the_recorded_one() -> None:
    found = json.dumps(bake_definition(family(), epoch=1700000000), indent=2) + "\n"
    assert found == (SAMPLES / "bake.json").read_text(encoding="utf-8")


def test_the_order_of_the_targets_does_not_matter() -> None:
    forth, back = (bake_definition(targets) for targets in (family(), family()[::-1]))
    assert json.dumps(forth) == json.dumps(back)
    assert "SOURCE_DATE_EPOCH" not in json.dumps(forth), "there is no epoch"


def test_buildkits_own_cache_is_read_and_written_in_full(tmp_path: Path) -> None:
    plain = BakeTarget("a", tmp_path, tmp_path / "Dockerfile")
    made = bake_definition([plain, replace(plain, name="b", cache="h/c:buildkit-b")])["target"]
    assert not {"cache-from", "cache-to"} & {*made["a"]}  # type: ignore[misc]
    assert made["b"]["cache-from"] == ["type=registry,ref=h/c:buildkit-b"]  # type: ignore[index]
    (kept,) = made["b"]["cache-to"]  # type: ignore[index]
    assert kept.startswith("type=registry,ref=h/c:buildkit-b,mode=max,")
