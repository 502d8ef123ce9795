"""The bake definition, and running bake with a program that plays buildx."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    buildx: Buildx,
    folder: Path,
    names: tuple[str, ...] = FAMILY,
    **options: Any,
) -> tuple[dict[str, BuiltImage], list[BakeEvent]]:
    targets = [BakeTarget(name, folder, folder / "Dockerfile") for name in names]
    events: list[BakeEvent] = []
    where: dict[str, Any] = {"log": folder / "logs" / "build.log", "listener": events.append}
    return run_bake(buildx, "unix:///run/test.sock", targets, **{**where, **options}), events


def test_built_images_have_their_ids_and_everything_is_in_the_log(tmp_path: Path) -> None:
    """Each is told of when its export has ended, before buildx writes ids: others in this test."""
    told: dict[str, BuiltImage] = {}
    buildx = fake_buildx.replaying(tmp_path, SAMPLES / "ok", built=BUILT)
    images, events = bake(buildx, tmp_path, exported=told.__setitem__)
    assert {image.image_id for image in images.values()} == {fake_buildx.IMAGE}
    for image in (*images.values(), *told.values()):
        assert 0.3 < (image.seconds or 0) < 5
        assert 0.3 < image.work < 5
    ids = {name: image.image_id[:15] for name, image in told.items()}
    assert ids == dict(zip(FAMILY, ["sha256:5a2d0643", "sha256:ed2e7ece"], strict=True))
    assert events[0] == BakeBegun(FAMILY)
    assert {event.target for event in events if isinstance(event, BuildEvent)} == {None, *FAMILY}
    log = (tmp_path / "logs" / "build.log").read_text()
    assert "Z [tf-2.2-cpu] #10 hello tf-2.2-cpu\n" in log
    assert "#11 exporting to image (done after 0.0 s)\n" in log


def test_another_builder_is_named_and_its_images_go_by_what_the_engine_loaded(
    tmp_path: Path,
) -> None:
    """Not by what buildx tells of it, which a graph driver does not know."""
    buildx = fake_buildx.replaying(tmp_path, SAMPLES / "ok", built=BUILT)
    built, events = bake(replace(buildx, builder="farm"), tmp_path)
    assert fake_buildx.IMAGE not in {image.image_id for image in built.values()}
    assert "--builder=farm" in fake_buildx.seen(tmp_path)["argv"]
    assert events[0] == BakeBegun(FAMILY, "farm")


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
    assert (len(failure.tail), failure.tail[-1]) == (20, "line 25")
    for said in ("Building bad failed", "not faulty: tf-2.2-cpu", "logs/build.log", "line 25"):
        assert said in str(caught.value)


def test_success_without_an_image_id_is_an_error(tmp_path: Path) -> None:
    built = fake_buildx.metadata("tf-2_2-cpu")
    with pytest.raises(MachineError, match=r"tf-2\.3-cpu"):
        bake(fake_buildx.replaying(tmp_path, SAMPLES / "ok", built=built), tmp_path)


LOST = (
    "failed to solve: failed to prepare a9b as xnx: invalid output path: stat /4iay: no such file"
)


@pytest.mark.parametrize(
    ("words", "kind", "failed"),
    [
        ("target tf-2_2-cpu: failed to solve: it broke", BuildFailedError, FAMILY[:1]),
        (f"{LOST} or directory", BuildStoppedError, FAMILY),
    ],
    ids=["unknown", "layer that cannot be forgotten"],
)
def test_a_failure_outside_any_step_is_in_the_words_of_buildx(
    tmp_path: Path, words: str, kind: type[BuildFailedError], failed: tuple[str, ...]
) -> None:
    odd = '{"vertexes": 3}'
    (tmp_path / "odd.rawjson").write_text(f"{odd}\n\x00\n#7\nERROR: {words}\n")
    with pytest.raises(kind, match=words.rpartition("failed to solve: ")[2]) as caught:
        bake(fake_buildx.replaying(tmp_path, tmp_path / "odd", code=1), tmp_path)
    assert caught.value.failure.failed == failed
    assert odd in (tmp_path / "logs" / "build.log").read_text(), "unknown lines are kept"


def wait_for_death(folder: Path) -> None:
    """Wait until none of the fake's two processes runs."""
    pids = [int(word) for word in (folder / "pids").read_text().split()]
    wait_for(lambda: not any(map(is_running, pids)), 5)


def test_an_error_of_the_display_leaves_no_process(tmp_path: Path) -> None:
    def broken(event: BakeEvent) -> None:
        if isinstance(event, BuildEvent):
            raise UnicodeError

    with pytest.raises(UnicodeError):
        bake(fake_buildx.hanging(tmp_path), tmp_path, ("one",), listener=broken)
    wait_for_death(tmp_path)


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_build_that_is_to_stop_leaves_no_process(tmp_path: Path, seconds: int) -> None:
    """Soon, though it says nothing and no step is over its limit, or has none."""
    buildx = replace(fake_buildx.hanging(tmp_path), step_seconds=seconds)
    stop = threading.Event()

    def begun(event: BakeEvent) -> None:
        if isinstance(event, BuildEvent):
            threading.Timer(0.3, stop.set).start()

    with pytest.raises(BakeCancelledError):
        bake(buildx, tmp_path, ("one",), listener=begun, stopped=stop.is_set)
    wait_for_death(tmp_path)


def test_a_silent_build_is_stopped(tmp_path: Path) -> None:
    buildx = replace(fake_buildx.hanging(tmp_path, words=""), step_seconds=1)
    with pytest.raises(BuildFailedError, match="the engine said nothing for more than") as caught:
        bake(buildx, tmp_path)
    assert (caught.value.exit_code, caught.value.failure.failed) == (3, FAMILY)


def test_the_definition_is_the_recorded_one() -> None:
    """Whatever the order of the targets."""
    base = BakeTarget(
        name="tf-2.2-cpu-debian",
        context=Path("/checkout/images/files"),
        dockerfile=Path("/checkout/images/dockerfiles/tf-2.2-cpu-debian/Dockerfile"),
        contexts={"python": "/prefix", "base": "docker-image://base:1"},
        args={"PIP_INDEX_URL": "https://index.example/simple"},
        labels={"org.opencontainers.image.title": "costs ${nothing} or %{nothing}"},
        secrets={"ca": Path("/ca.pem")},
        target="final",
    )
    derived = BakeTarget(
        name="derived-1.0",
        context=Path("/c"),
        dockerfile=Path("/c/Dockerfile"),
        contexts={"base": "target:tf-2.2-cpu-debian"},
        output="type=local,dest=/out",
    )
    recorded = (SAMPLES / "bake.json").read_text(encoding="utf-8")
    for targets in ([base, derived], [derived, base]):
        found = bake_definition(targets, epoch=1700000000)
        assert json.dumps(found, indent=2) + "\n" == recorded


def test_buildkits_own_cache_is_read_and_written_in_full(tmp_path: Path) -> None:
    plain = BakeTarget("a", tmp_path, tmp_path / "Dockerfile")
    made: Any = bake_definition([plain, replace(plain, name="b", cache="h/c:buildkit-b")])["target"]
    assert not {"cache-from", "cache-to", "args"} & {*made["a"]}, "and there is no epoch"
    assert made["b"]["cache-from"] == ["type=registry,ref=h/c:buildkit-b"]
    (kept,) = made["b"]["cache-to"]
    assert kept.startswith("type=registry,ref=h/c:buildkit-b,mode=max,")
