"""The bake file of a build, and running buildx with a program that plays it."""

import json
import threading
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imgbuild.core.errors import MachineError
from imgbuild.engine import build
from imgbuild.engine.build import (
    BuildTarget,
    bake_definition,
    build_image,
    export_files,
)
from imgbuild.engine.discovery import Buildx
from imgbuild.engine.failure import BuildFailedError
from imgbuild.engine.steps import Step
from support import fake_buildx
from support.waiting import is_running, wait_for

SAMPLES = fake_buildx.SAMPLES
BUILT = fake_buildx.metadata("tf-2_2-cpu")


def run(
    buildx: Buildx, folder: Path, name: str = "tf-2.2-cpu", **options: Any
) -> tuple[tuple[str, float], list[Step]]:
    needed = BuildTarget("tf-2.3-cpu", folder, folder / "Dockerfile", output="")
    target = BuildTarget(name, folder, folder / "Dockerfile", needs=(needed,))
    steps: list[Step] = []
    options = {"log": folder / "logs" / "build.log", "show": steps.append, **options}
    return build_image(replace(buildx, host="unix:///run/test.sock"), target, **options), steps


def test_a_built_image_has_its_id_and_everything_is_in_the_log(tmp_path: Path) -> None:
    buildx = fake_buildx.replaying(tmp_path, SAMPLES / "ok", built=BUILT)
    (image_id, work), steps = run(buildx, tmp_path)
    assert image_id == fake_buildx.IMAGE
    assert 0.3 < work < 10
    assert "exporting to image" in {step.name for step in steps}
    log = (tmp_path / "logs" / "build.log").read_text()
    assert "Z #10 hello tf-2.2-cpu\n" in log
    assert "Z #11 exporting to image (done after 0.0 s)\n" in log


def test_another_builder_is_named_and_its_image_goes_by_what_the_engine_loaded(
    tmp_path: Path,
) -> None:
    """Not by what buildx tells of it, which a graph driver does not know."""
    buildx = fake_buildx.replaying(tmp_path, SAMPLES / "ok", built=BUILT)
    (image_id, _), _ = run(replace(buildx, builder="farm"), tmp_path)
    assert image_id[:15] in {"sha256:5a2d0643", "sha256:ed2e7ece"}
    assert "--builder=farm" in fake_buildx.seen(tmp_path)["argv"]


def test_the_engine_and_nothing_else_of_the_environment_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "elsewhere")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "99")
    run(fake_buildx.replaying(tmp_path, SAMPLES / "ok", built=BUILT), tmp_path)
    seen = fake_buildx.seen(tmp_path)
    assert seen["env"]["DOCKER_HOST"] == "unix:///run/test.sock"
    assert seen["env"]["BUILDX_NO_DEFAULT_ATTESTATIONS"] == "1"
    assert not {"DOCKER_CONTEXT", "SOURCE_DATE_EPOCH"} & {*seen["env"]}
    assert seen["argv"][:3] == ["bake", "--builder=default", "--progress=rawjson"]
    assert seen["bake"]["group"]["default"]["targets"] == ["tf-2_2-cpu"]


def test_files_of_a_stage_go_into_a_folder(tmp_path: Path) -> None:
    target = BuildTarget("a", tmp_path, tmp_path / "Dockerfile", target="stage")
    buildx = fake_buildx.replaying(tmp_path, SAMPLES / "ok")
    out = tmp_path / "out"
    assert export_files(buildx, target, out, log=tmp_path / "log") > 0
    described = fake_buildx.seen(tmp_path)["bake"]["target"]["a"]
    assert (described["output"], described["target"]) == ([f"type=local,dest={out}"], "stage")


def test_a_failure_names_image_step_and_error(tmp_path: Path) -> None:
    buildx = fake_buildx.replaying(tmp_path, SAMPLES / "fail", code=1)
    with pytest.raises(BuildFailedError) as caught:
        run(buildx, tmp_path, "bad")
    error = caught.value
    assert error.step.startswith("[horovod 1/2] RUN ")
    assert error.cause == "exit code: 7"
    assert (len(error.tail), error.tail[-1]) == (20, "line 25")
    for said in ("Building bad failed", "logs/build.log", "line 25"):
        assert said in str(error)


def test_success_without_an_image_id_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"tf-2\.2-cpu"):
        run(fake_buildx.replaying(tmp_path, SAMPLES / "ok", built={}), tmp_path)


LOST = (
    "failed to solve: failed to prepare a9b as xnx: invalid output path: stat /4iay: no such file"
)
#: How often buildx runs for what it fails with, and the exit code.
REASONS = {
    "target tf-2_2-cpu: failed to solve: it broke": (1, 1),
    f"{LOST} or directory": (2, 3),
    "failed to solve: DeadlineExceeded: no active session for pmk": (2, 3),
}


@pytest.mark.parametrize("words", REASONS)
def test_a_failure_outside_any_step_is_in_the_words_of_buildx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """A lost layer is forgotten, a step that another build began is begun again, each once."""
    forgotten: list[str] = []
    monkeypatch.setattr(build, "forget_cache", lambda _, entry: forgotten.append(entry))
    odd = '{"vertexes": 3}'
    (tmp_path / "odd.rawjson").write_text(f"{odd}\n\x00\n#7\nERROR: {words}\n")
    with pytest.raises(BuildFailedError, match=words.rpartition("failed to solve: ")[2]) as caught:
        run(fake_buildx.replaying(tmp_path, tmp_path / "odd", code=1), tmp_path)
    runs, code = REASONS[words]
    assert caught.value.exit_code == code
    log = (tmp_path / "logs" / "build.log").read_text()
    assert log.count(odd) == runs, "unknown lines are kept"
    assert forgotten == (["id=a9b"] if "a9b" in words else [])


def wait_for_death(folder: Path) -> None:
    """Wait until none of the fake's two processes runs."""
    pids = [int(word) for word in (folder / "pids").read_text().split()]
    wait_for(lambda: not any(map(is_running, pids)), 5)


def test_an_error_of_the_display_leaves_no_process(tmp_path: Path) -> None:
    def broken(_: Step) -> None:
        raise UnicodeError

    with pytest.raises(UnicodeError):
        run(fake_buildx.hanging(tmp_path), tmp_path, show=broken)
    wait_for_death(tmp_path)


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_build_that_is_to_stop_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """Soon, though it says nothing and no step is over its limit, or has none."""
    monkeypatch.setattr(build, "LOOK_SECONDS", 0.1)
    buildx = replace(fake_buildx.hanging(tmp_path), step_seconds=seconds)
    stop = threading.Event()

    def begun(_: Step) -> None:
        threading.Timer(0.3, stop.set).start()

    with pytest.raises(CancelledError):
        run(buildx, tmp_path, show=begun, stopped=stop.is_set)
    wait_for_death(tmp_path)


def test_a_step_over_its_limit_and_a_silent_build_are_stopped(tmp_path: Path) -> None:
    buildx = replace(fake_buildx.hanging(tmp_path), step_seconds=1)
    with pytest.raises(BuildFailedError, match="the limit of a step") as caught:
        run(buildx, tmp_path)
    assert (caught.value.exit_code, caught.value.step) == (1, "[1/2] RUN sleep")
    wait_for_death(tmp_path)
    buildx = replace(fake_buildx.hanging(tmp_path, words=""), step_seconds=1)
    with pytest.raises(BuildFailedError, match="the engine said nothing for more than") as caught:
        run(buildx, tmp_path)
    assert caught.value.exit_code == 3
    wait_for_death(tmp_path)


def test_a_builder_that_falls_silent_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a machine without power: it ends no connection. One answer that is late is no sign."""
    answers = iter([False, True, False, False])
    monkeypatch.setattr(build, "WATCH_SECONDS", 0.1)
    monkeypatch.setattr(build, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(build, "is_reachable", lambda *_: next(answers))
    buildx = replace(fake_buildx.hanging(tmp_path), builder="farm")
    with pytest.raises(BuildFailedError, match="builder farm does not answer"):
        run(buildx, tmp_path)
    assert [*answers] == []
    wait_for_death(tmp_path)


def test_the_definition_is_the_recorded_one() -> None:
    needed = BuildTarget(
        name="cpython-3.6.15",
        context=Path("/c"),
        dockerfile=Path("/c/Dockerfile"),
        contexts={"base": "docker-image://base:1"},
        output="",
    )
    target = BuildTarget(
        name="tf-2.2-cpu-debian",
        context=Path("/checkout/images/files"),
        dockerfile=Path("/checkout/images/dockerfiles/tf-2.2-cpu-debian/Dockerfile"),
        contexts={"cpython": "target:cpython-3.6.15", "base": "docker-image://base:1"},
        args={"PIP_INDEX_URL": "https://index.example/simple"},
        labels={"org.opencontainers.image.title": "costs ${nothing} or %{nothing}"},
        secrets={"ca": Path("/ca.pem")},
        target="final",
        needs=(needed,),
    )
    recorded = (SAMPLES / "bake.json").read_text(encoding="utf-8")
    found = bake_definition(target, epoch=1700000000)
    assert json.dumps(found, indent=2) + "\n" == recorded


def test_an_exported_stage_is_as_new_as_what_it_copies(tmp_path: Path) -> None:
    target = BuildTarget(
        "tf-2.2-cpu", tmp_path, tmp_path / "Dockerfile", target="found", uncached=("updates",)
    )
    described: Any = bake_definition(target)["target"]
    assert {"updates", "found"} <= {*described["tf-2_2-cpu"]["no-cache-filter"]}


def test_buildkits_own_cache_is_read_and_written_in_full(tmp_path: Path) -> None:
    plain = BuildTarget("a", tmp_path, tmp_path / "Dockerfile")
    made: Any = bake_definition(plain)["target"]
    assert not {"cache-from", "cache-to", "args"} & {*made["a"]}, "and there is no epoch"
    made = bake_definition(replace(plain, cache="h/c:buildkit-a"))["target"]
    assert made["a"]["cache-from"] == ["type=registry,ref=h/c:buildkit-a"]
    (kept,) = made["a"]["cache-to"]
    assert kept.startswith("type=registry,ref=h/c:buildkit-a,mode=max,")
