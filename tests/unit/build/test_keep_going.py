# ruff: noqa: F811  # the fixture's name is also what tests call it
"""What one image lacks stops no other; what all of them need stops the build, which says so."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from test_produce import INPUTS, NEW, OLD, Bench, _states, bench  # noqa: F401  # the fixture

from imgbuild.build.blame import Blame
from imgbuild.build.options import BuildOptions
from imgbuild.build.outcome import Outcome
from imgbuild.caches.place import FolderPlace
from imgbuild.caches.several import open_caches
from imgbuild.cli.build_run import run
from imgbuild.engine.bake import BuildFailedError, BuildStoppedError
from imgbuild.engine.failure import Diagnosis, FaultKind
from imgbuild.engine.faults import EngineUnusableError
from imgbuild.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.inputs.build_inputs import BaseInput, ImageDownloads
from imgbuild.inputs.download import Download, NotFetchedError, WrongContentError
from imgbuild.matrix.images import Image
from imgbuild.plan.plan import PlanItem

GOING_ON = BuildOptions(keep_going=True, jobs=1)


def _stop_baking(bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: FaultKind) -> None:
    """Let the image that does not build fail for a reason of the machine's."""

    def bake(*given: object, **more: object) -> object:
        try:
            return bench.bake(*given, **more)  # type: ignore[arg-type]
        except BuildFailedError as error:
            diagnosis = Diagnosis(kind, "line", f"Advice on {kind}.")
            raise BuildStoppedError(replace(error.failure, diagnosis=diagnosis)) from error

    monkeypatch.setattr("imgbuild.build.bake.run_bake", bake)
    bench.broken = {OLD}


@pytest.mark.parametrize("kind", ["unreachable", "certificate"])
def test_an_upstream_is_missed_only_by_who_needs_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: FaultKind
) -> None:
    _stop_baking(bench, monkeypatch, kind)
    old, new = bench.build(keep_going=True)
    assert (old.state, new.state) == ("failed", "done")
    assert old.blame is Blame.MACHINE
    assert bench.baked == [[OLD, NEW], [NEW]]


@pytest.mark.parametrize("kind", ["disk", "engine", "silent"])
def test_without_the_engine_nothing_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: FaultKind
) -> None:
    _stop_baking(bench, monkeypatch, kind)
    outcomes = bench.build(keep_going=True)
    assert [one.blame for one in outcomes] == [Blame.ALL, Blame.ALL]
    assert outcomes[1].error == f"cancelled, since {OLD} failed"
    assert bench.baked == [[OLD, NEW]]


ALONE, SHARED = (Download(name, f"https://x/{name}", "0" * 64) for name in ("alone", "shared"))


def _downloads(bench: Bench, **wanted: tuple[Download, ...]) -> None:
    names = {"old": OLD, "new": NEW}
    each = {names[key]: ImageDownloads({"downloads": files}, {}) for key, files in wanted.items()}
    bench.workshop = replace(bench.workshop, inputs=replace(INPUTS, downloads=each))


def _fetching(fault: Callable[[Download], ImgbuildError | None], asked: list[str]) -> object:
    def context(files: Iterable[Download], *_: object) -> Path:
        for file in files:
            asked.append(file.file_name)
            error = fault(file)
            if error:
                raise error
        return Path("/downloads")

    return context


@pytest.mark.parametrize("kind", [NotFetchedError, WrongContentError])
def test_a_download_is_missed_only_by_who_needs_it(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[NotFetchedError | WrongContentError],
) -> None:
    _downloads(bench, old=(ALONE,), new=(SHARED,))
    asked: list[str] = []
    fake = _fetching(lambda file: kind("no such site", file) if file == ALONE else None, asked)
    monkeypatch.setattr("imgbuild.build.supplies.downloads_context", fake)
    assert _states(bench.build(keep_going=True)) == {OLD: "failed", NEW: "done"}
    assert bench.baked == [[NEW]]


def test_a_download_that_cannot_be_had_is_tried_once_for_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    _downloads(bench, old=(SHARED,), new=(SHARED, ALONE))
    asked: list[str] = []
    fake = _fetching(lambda file: NotFetchedError("no such site", file), asked)
    monkeypatch.setattr("imgbuild.build.supplies.downloads_context", fake)
    outcomes = bench.build(keep_going=True)
    assert [one.error for one in outcomes] == ["no such site"] * 2
    assert asked == ["shared"]
    assert not bench.baked


def test_without_keep_going_the_first_missing_download_ends_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    _downloads(bench, old=(ALONE,), new=(SHARED,))
    asked: list[str] = []
    fake = _fetching(lambda file: NotFetchedError("no such site", file), asked)
    monkeypatch.setattr("imgbuild.build.supplies.downloads_context", fake)
    assert _states(bench.build()) == {OLD: "failed"}
    assert asked == ["alone"]


def test_a_base_is_missed_only_by_who_is_built_on_it(
    bench: Bench, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "tf-2.2-cpu-ubuntu"
    base = BaseInput("ubuntu@sha256:a", "sha256:a", "registry")
    inputs = replace(
        INPUTS,
        bases={**INPUTS.bases, images[other].os_name: base},
        interpreters={
            **INPUTS.interpreters,
            images[other].version_of("python"): INPUTS.interpreters["3.6.15"],
        },
        downloads={**INPUTS.downloads, other: ImageDownloads({}, {})},
    )
    bench.workshop = replace(bench.workshop, inputs=inputs)
    bench.images = (images[other], images[NEW])

    def load(names: list[str], *_: object) -> None:
        if names == [images[other].os_name]:
            raise MachineError("the base is damaged")

    monkeypatch.setattr("imgbuild.build.produce.load_bases", load)
    outcomes = bench.build(keep_going=True)
    assert _states(outcomes) == {other: "failed", NEW: "done"}
    assert outcomes[0].error == "the base is damaged"


def _failing_gate(monkeypatch: pytest.MonkeyPatch, error: ImgbuildError) -> None:
    from imgbuild.build.gate import pass_gate

    def gate(item: PlanItem, *given: object, **more: object) -> Outcome:
        if item.image.name == OLD:
            raise error
        return pass_gate(item, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("imgbuild.build.gates.pass_gate", gate)


def test_an_error_at_the_gate_is_that_images(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    _failing_gate(monkeypatch, MachineError("no container could be started"))
    old, new = bench.build(keep_going=True, jobs=1)
    assert (old.state, new.state) == ("failed", "done")
    assert (old.error, old.blame) == ("no container could be started", Blame.MACHINE)


def test_when_the_engine_is_lost_no_further_image_begins(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failing_gate(monkeypatch, EngineUnusableError("it does not answer"))
    (old,) = bench.build(keep_going=True, jobs=1)
    assert (old.item.image.name, old.blame) == (OLD, Blame.ALL)
    assert bench.tested == []


def test_what_was_done_is_kept_and_told_before_the_error_that_stops_the_build(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The engine is lost after one image has passed, in the middle of the next."""
    said: list[str] = []
    caches = open_caches([], [FolderPlace(tmp_path / "kept")], bench.engine, said.append)
    bench.workshop = replace(bench.workshop, caches=caches)
    bench.images = bench.images[::-1]
    _failing_gate(monkeypatch, EngineUnusableError("it does not answer"))
    with pytest.raises(MachineError, match=f"^{OLD} has no name: it does not answer") as caught:
        run(bench.workshop, bench.images, GOING_ON, as_json=False)
    assert caught.value.exit_code == 3
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert rows[1].startswith(f"{NEW} named built, tested ")
    assert rows[2].startswith(f"{OLD} failed ")
    assert rows[-1] == "2 images: 1 named, 1 failed."
    assert any(line.startswith(f"Kept in the cache {tmp_path}/kept: {NEW}") for line in said)


def test_an_error_between_the_images_comes_after_the_table(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def bring(*_: object, **__: object) -> None:
        raise EngineUnusableError("it does not answer")

    bench.build()
    bench.workshop = replace(bench.workshop, inputs=replace(INPUTS, uv_version="99"))
    bench.images = (bench.images[0],)
    monkeypatch.setattr("imgbuild.build.produce.bring_each", bring)
    with pytest.raises(EngineUnusableError, match=r"^it does not answer"):
        run(bench.workshop, bench.images, GOING_ON, as_json=True)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == []


@pytest.mark.parametrize(("faulty", "error"), [(set(), MachineError), ({NEW}, CheckFailedError)])
def test_the_machine_is_to_blame_only_if_it_is_for_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, faulty: set[str], error: type[ImgbuildError]
) -> None:
    _stop_baking(bench, monkeypatch, "unreachable")
    bench.faulty = faulty
    with pytest.raises(error) as caught:
        run(bench.workshop, bench.images, GOING_ON, as_json=False)
    assert f"{OLD} has no name: Building {OLD} failed" in str(caught.value)
    assert "Advice on unreachable." in str(caught.value)


def test_images_that_fail_for_one_reason_are_said_in_one_paragraph(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _downloads(bench, old=(SHARED,), new=(SHARED,))
    fake = _fetching(lambda file: NotFetchedError("no such site", file), [])
    monkeypatch.setattr("imgbuild.build.supplies.downloads_context", fake)
    with pytest.raises(MachineError) as caught:
        run(bench.workshop, bench.images, GOING_ON, as_json=False)
    assert str(caught.value) == f"{OLD}, {NEW} have no name: no such site"
    assert "not begun" not in capsys.readouterr().out
