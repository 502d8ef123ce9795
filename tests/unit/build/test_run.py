"""The pipeline of ``imgbuild build``, on an engine in memory."""

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_engine
import pytest
from bench import INPUTS, NEW, OLD, Bench

from imgbuild.build.context import image_locks
from imgbuild.build.result import Build, BuildResult, concerns_all
from imgbuild.cli.build_command import build_lines, usage_lines
from imgbuild.engine.failure import FAULTS, BuildFailedError, BuildStoppedError
from imgbuild.engine.faults import EngineUnusableError
from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.inputs.build_inputs import BaseInput, ImageDownloads
from imgbuild.inputs.download import Download, NotFetchedError, WrongContentError
from imgbuild.inputs.oci_layout import BaseLayout
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.project import Project
from imgbuild.suites.container import TestTarget
from imgbuild.suites.results import Report, SuiteResult, TestFailure
from waiting import wait_for

CHANGED = replace(INPUTS, uv_version="99")


# What gets its tags


def test_what_passed_gets_its_tags_and_a_second_build_has_nothing_to_do(bench: Bench) -> None:
    assert bench.states() == {OLD: "done", NEW: "done"}
    assert bench.tags() == bench.tags(OLD) | bench.tags(NEW)
    assert bench.baked == [[OLD, NEW]]
    assert bench.states() == {OLD: "up to date", NEW: "up to date"}
    assert len(bench.baked) == 1
    assert sorted(bench.tested) == [OLD, NEW]


def test_what_failed_its_suites_gets_no_tag_and_is_tested_again_not_built(bench: Bench) -> None:
    bench.faulty = {NEW}
    old, new = bench.build()
    assert (old.state, new.state) == ("done", "suites failed")
    assert "horovod: test_x" in str(new.error)
    assert bench.tags() == bench.tags(OLD)
    bench.faulty = set()
    assert bench.states() == {OLD: "up to date", NEW: "done"}
    assert len(bench.baked) == 1


def test_a_failed_successor_leaves_the_old_image_its_tags(bench: Bench) -> None:
    bench.build()
    before = bench.engine.inspect(bench.context.images[1].tags[0])
    bench.change(inputs=CHANGED)
    bench.faulty = {NEW}
    bench.build()
    assert bench.engine.inspect(bench.context.images[1].tags[0]) == before


@pytest.mark.parametrize("remembered", [True, False])
def test_a_successor_takes_the_tags_and_the_old_image_goes(bench: Bench, remembered: bool) -> None:
    bench.build()
    if not remembered:
        shutil.rmtree(bench.context.store.folder)
    bench.change(inputs=CHANGED)
    assert bench.states() == {OLD: "done", NEW: "done"}
    assert len(bench.engine.stored) == 2


def test_an_untagged_image_that_others_may_be_testing_stays(bench: Bench) -> None:
    """They share the engine; only what this state folder tested, or untagged just now, goes.

    Another checkout of this user, whose images have another repository, shares the folder, too.
    """
    bench.build()
    stored = bench.engine.stored
    first = next(iter(stored.values()))
    labels = {**first.labels, "imgbuild.input-digest": "sha256:other"}
    elsewhere = {**labels, "imgbuild.repository": "another/tensorflow"}
    theirs, mine, another = (
        replace(first, id=f"sha256:{number:064}", tags=(), labels=its)
        for number, its in ((901, labels), (902, labels), (903, elsewhere))
    )
    stored.update({one.id: one for one in (theirs, mine, another)})
    for one in (mine, another):
        bench.context.store.import_results(one.id, {})
    bench.change(inputs=CHANGED)
    bench.build()
    assert {theirs.id, another.id} <= {*stored}
    assert mine.id not in stored
    assert first.id not in stored


def test_families_of_two_repositories_share_an_engine_and_nothing_else(bench: Bench) -> None:
    """Their inputs are the same, so are the names of their images; only the repository differs."""
    bench.build()
    own, before = bench.context.images, dict(bench.engine.stored)
    bench.change(images=tuple(replace(one, repository="team/tensorflow") for one in own))
    assert {(item.action, item.reason) for item in bench.plan()} == {("build", "never built here")}
    bench.build()
    bench.change(inputs=CHANGED)
    assert all(item.reason.startswith("changed: ") for item in bench.plan())
    bench.build()
    assert before.items() <= bench.engine.stored.items()
    bench.change(images=own, inputs=INPUTS)
    assert {(item.action, item.image_id) for item in bench.plan()} == {
        ("nothing", image_id) for image_id in before
    }


def test_what_is_about_to_be_tested_is_remembered_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed test leaves it untagged, and `imgbuild clean` must know whose it is."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("imgbuild.build.gate._test_and_tag", killed)
    with pytest.raises(KeyboardInterrupt):
        bench.build(jobs=1)
    assert all(bench.context.store.was_to_test(one) for one in bench.engine.stored)
    assert not bench.context.store.was_to_test("sha256:other")


def test_only_a_changed_suite_is_run_again(bench: Bench, project: Project, tmp_path: Path) -> None:
    copied = tmp_path / "checkout" / "tests" / "image"
    shutil.copytree(project.suites, copied, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("images", "matrix.yaml"):
        (tmp_path / "checkout" / name).symlink_to(project.root / name)
    bench.change(project=Project(tmp_path / "checkout"))
    bench.build()
    bench.suites_run.clear()
    with (copied / "test_pins.py").open("a") as file:
        file.write("# changed\n")
    (first, _) = bench.build()
    assert bench.suites_run == [("pins",)] * 2
    assert first.report is not None
    assert {s.suite for s in first.report.suites if s.before} >= {"horovod", "tensorflow"}
    bench.suites_run.clear()
    with (copied / "container.py").open("a") as file:
        file.write("# changed\n")
    bench.build()
    assert len(bench.suites_run[0]) > 1
    assert bench.states() == {OLD: "up to date", NEW: "up to date"}


def _with_budget(image: Image, megabytes: int) -> Image:
    return replace(image, row=image.row.model_copy(update={"budget": {"cpu": megabytes}}))


@pytest.mark.parametrize("test", [True, False])
def test_an_image_over_its_budget_is_not_tested_and_gets_no_tag(
    bench: Bench, *, test: bool
) -> None:
    first, second = bench.context.images
    bench.change(images=(_with_budget(first, 900), _with_budget(second, 1000)))
    old, new = bench.build(test=test, keep_going=True)
    assert (old.state, new.state) == ("failed", "done")
    assert "budget of 900 MB" in str(old.error)
    assert (old.size, bench.tested) == (10**9, [NEW] * test)
    assert bench.tags() == bench.tags(NEW)
    bench.change(images=(_with_budget(first, 953), second))
    assert all(result.ok for result in bench.build())
    assert len(bench.baked) == 1  # a larger budget builds nothing again
    bench.change(images=(_with_budget(first, 900), second))
    bench.pretend_standin()  # what has no budget, and can never be pushed:
    bench.engine.stored.clear()
    assert all(result.ok for result in bench.build())


# What is locked


def test_a_second_build_is_refused_and_keeps_no_other_lock(tmp_path: Path) -> None:
    with image_locks(["tf-2.2"], None, tmp_path):
        message = rf"tf-2\.2 is being built, .*process {os.getpid()}"
        with (
            pytest.raises(MachineError, match=message),
            image_locks(["tf-1.10", "tf-2.2"], None, tmp_path),
        ):
            pass
        with (
            image_locks(["tf-1.10"], None, tmp_path),
            image_locks(["tf-2.2"], "tcp://elsewhere:2375", tmp_path),
        ):
            pass


# What fails


def test_a_failure_stops_the_other_images_unless_it_keeps_going(bench: Bench) -> None:
    bench.broken = {OLD}
    old, new = bench.build()
    assert (old.state, new.state) == ("failed", "failed")
    assert str(new.error) == f"cancelled, since {OLD} failed"
    assert bench.tags() == set()
    assert bench.states(keep_going=True) == {OLD: "failed", NEW: "done"}
    assert bench.tags() == bench.tags(NEW)
    bench.broken, bench.faulty = set(), {OLD, NEW}
    bench.engine.stored.clear()
    bench.tested.clear()
    assert bench.states(jobs=1) == {OLD: "suites failed"}
    assert bench.tested == [OLD]
    assert bench.states(jobs=1, keep_going=True) == {OLD: "suites failed", NEW: "suites failed"}


def _change_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str | None = None, **change: object
) -> None:
    """Let the first image fail to build, with another failure than usual."""

    def bake(*arguments: object, **more: object) -> object:
        try:
            return bench.bake(*arguments, **more)  # type: ignore[arg-type]
        except BuildFailedError as error:
            failure = replace(error.failure, **change)  # type: ignore[arg-type]
            if kind is None:
                raise BuildFailedError(failure) from error
            fault = next(one for one in FAULTS if one.kind == kind)
            raise BuildStoppedError(replace(failure, fault=fault)) from error

    monkeypatch.setattr("imgbuild.build.bake_images.run_bake", bake)
    bench.broken = {OLD}


@pytest.mark.parametrize("kind", ["unreachable", "disk", "engine"])
def test_a_missing_upstream_concerns_one_image_and_a_lost_engine_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    _change_failure(bench, monkeypatch, kind)
    old, new = bench.build(keep_going=True)
    if kind == "unreachable":
        assert (type(old.error), new.state) == (BuildStoppedError, "done")
        assert bench.baked == [[OLD, NEW], [NEW]]
    else:
        assert old.error
        assert concerns_all(old.error)
        assert str(new.error) == f"cancelled, since {OLD} failed"
        assert bench.baked == [[OLD, NEW]]


ALONE, SHARED = (Download(name, f"https://x/{name}", "0" * 64) for name in ("alone", "shared"))


def _missing(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    missing: Download,
    error: type[NotFetchedError | WrongContentError] = NotFetchedError,
    **files: tuple[Download, ...],
) -> list[str]:
    """Let a file be missing that both images need, or one; return which files are fetched."""
    each = {OLD: files["old"], NEW: files["new"]}
    downloads = {name: ImageDownloads({"downloads": of}, {}) for name, of in each.items()}
    bench.change(inputs=replace(INPUTS, downloads=downloads))
    fetched: list[str] = []

    def context(files: Iterable[Download], **_: object) -> Path:
        for file in files:
            fetched.append(file.name)
            if file == missing:
                raise error("no such site", file)
        return Path("/downloads")

    monkeypatch.setattr("imgbuild.build.prepare.downloads_context", context)
    return fetched


@pytest.mark.parametrize("error", [NotFetchedError, WrongContentError])
def test_a_missing_download_concerns_only_the_image_that_needs_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: type[NotFetchedError | WrongContentError]
) -> None:
    fetched = _missing(bench, monkeypatch, ALONE, error, old=(ALONE,), new=(SHARED,))
    loaded: list[str] = []
    monkeypatch.setattr("imgbuild.build.prepare.load_base", lambda name, _: loaded.append(name))
    assert bench.states() == {OLD: "failed"}
    assert loaded == []
    assert fetched == ["alone"]
    assert bench.states(keep_going=True) == {OLD: "failed", NEW: "done"}
    assert bench.baked == [[NEW]]


def test_a_missing_download_is_tried_once_and_reported_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = _missing(bench, monkeypatch, SHARED, old=(SHARED,), new=(SHARED, ALONE))
    build = bench.run(keep_going=True)
    assert (fetched, bench.baked) == (["shared"], [])
    assert isinstance(build.failure(), MachineError)
    assert str(build.failure()) == f"{OLD}, {NEW} were not tagged: no such site"


def test_a_missing_source_of_cpython_names_the_command_that_finds_another_one(
    bench: Bench, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = images[NEW]
    assert image.python.origin == "source"
    source = Download("Python", image.matrix.sources[image.python.source].url, "0" * 64)
    _missing(bench, monkeypatch, source, old=(source,), new=(source,))
    said = str(bench.run(keep_going=True).failure())
    assert said.count("doctor --write") == 1, "once for both"
    assert "3.6.15" in said


def test_a_missing_base_concerns_only_the_images_on_it(
    bench: Bench, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = images["tf-2.2-cpu-ubuntu"]
    base = BaseInput("ubuntu@sha256:a", "sha256:a", "registry")
    python = INPUTS.interpreters["3.6.15"]
    inputs = replace(
        INPUTS,
        bases={**INPUTS.bases, other.os_name: base},
        interpreters={**INPUTS.interpreters, other.version_of("python"): python},
        downloads={**INPUTS.downloads, other.name: ImageDownloads({}, {})},
    )
    bench.change(inputs=inputs, images=(other, images[NEW]))

    def load(name: str, _: object) -> None:
        if name == other.os_name:
            raise MachineError("the base is damaged")

    monkeypatch.setattr("imgbuild.build.prepare.load_base", load)
    first, second = bench.build(keep_going=True)
    assert (first.state, second.state) == ("failed", "done")
    assert str(first.error) == "the base is damaged"


@pytest.mark.parametrize(("found", "loaded"), [("config", 0), ("manifest", 0), ("forged", 1)])
def test_only_the_base_itself_is_taken_for_it(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str, loaded: int
) -> None:
    """Whoever can put an image into the engine can give it the name of a base."""
    layout = BaseLayout(tmp_path, "sha256:config", "imgbuild/base:debian-12-1", "sha256:manifest")
    base = BaseInput(layout.reference, layout.image_id, "bootstrapped", layout)
    bench.change(inputs=replace(INPUTS, bases={"debian-12": base}))
    bench.engine.stored["base"] = StoredImage(f"sha256:{found}", (layout.reference,))
    monkeypatch.setattr("imgbuild.build.prepare.write_archive", lambda _, path: path.touch())
    monkeypatch.setattr(bench.engine, "load", bench.engine.calls.append)
    bench.build()
    assert sum(not isinstance(call, str) for call in bench.engine.calls) == loaded


def test_a_damaged_base_never_reaches_the_engine(bench: Bench, tmp_path: Path) -> None:
    def refuse() -> None:
        raise MachineError("the base is damaged")

    layout = BaseLayout(tmp_path, "sha256:1", "imgbuild/base:debian-12-1")
    base = BaseInput(layout.reference, layout.image_id, "bootstrapped", layout, refuse)
    bench.change(inputs=replace(INPUTS, bases={"debian-12": base}))
    assert {str(result.error) for result in bench.build()} == {"the base is damaged"}
    assert "load" not in bench.engine.calls
    assert bench.baked == []


def _failing_suites(bench: Bench, monkeypatch: pytest.MonkeyPatch, error: ImgbuildError) -> None:
    def failing(target: TestTarget, *more: Any) -> Report:
        if target.name == OLD:
            raise error
        return bench.suites(target, *more)

    monkeypatch.setattr("imgbuild.suites.session.run_suites", failing)


def test_an_error_of_a_test_run_or_a_wheel_concerns_that_image(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bake may name the target that exports the wheel."""
    _failing_suites(bench, monkeypatch, MachineError("no container could be started"))
    old, new = bench.build(keep_going=True, jobs=1)
    assert (old.state, new.state) == ("failed", "done")
    assert (str(old.error), type(old.error)) == ("no container could be started", MachineError)
    bench.engine.stored.clear()
    _change_failure(bench, monkeypatch, failed=(f"{OLD}-horovod-wheel",))
    old, new = bench.build(keep_going=True)
    assert (type(old.error), new.state) == (BuildFailedError, "done")


def test_when_the_engine_is_lost_no_further_image_begins_and_the_table_is_complete(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failing_suites(bench, monkeypatch, EngineUnusableError("it does not answer"))
    (old,) = bench.build(keep_going=True, jobs=1)
    assert (old.name, type(old.error)) == (OLD, EngineUnusableError)
    assert bench.tested == []
    bench.change(images=bench.context.images[::-1])
    build = bench.run(keep_going=True, jobs=1)
    assert str(build.failure()).startswith(f"{OLD} was not tagged: it does not answer")
    assert isinstance(build.failure(), MachineError)
    rows = [" ".join(line.split()) for line in build_lines(build).splitlines()]
    assert rows[1].startswith(f"{NEW} tagged tested ")
    assert rows[2] == f"{OLD} failed"
    assert rows[-1] == "2 images: 1 tagged, 1 failed."


def test_an_error_between_the_images_stops_the_build_before_anything_is_fetched(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise EngineUnusableError("it does not answer")

    monkeypatch.setattr("imgbuild.build.pipeline.prepare", fail)
    build = bench.run(keep_going=True)
    assert build.results == ()
    assert isinstance(build.failure(), EngineUnusableError)
    *_, last = build_lines(build).splitlines()
    assert "2 images" in last
    assert "--keep-going" not in last
    monkeypatch.setattr("imgbuild.engine.discovery.find_buildx", fail)
    monkeypatch.setattr("imgbuild.build.pipeline.prepare", lambda *_: pytest.fail("fetched"))
    with pytest.raises(EngineUnusableError):
        bench.run()


@pytest.mark.parametrize(("faulty", "error"), [(set(), MachineError), ({NEW}, CheckFailedError)])
def test_it_is_a_machine_error_only_if_no_image_is_at_fault(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, faulty: set[str], error: type[ImgbuildError]
) -> None:
    _change_failure(bench, monkeypatch, "unreachable")
    bench.faulty = faulty
    failure = bench.run(keep_going=True).failure()
    assert isinstance(failure, error)
    assert f"{OLD} was not tagged: Building {OLD} failed" in str(failure)
    assert "An upstream cannot be reached" in str(failure)


# What is printed


def _result(image: Image, action: Action = Action.BUILD, **more: object) -> BuildResult:
    item = PlanItem(image, InputDigest("digest", {}), action, "reason")
    made = BuildResult(item, "sha256:1", 10**9, 245.0, 70.0, _report(image.name), tagged=True)
    return replace(made, **more)  # type: ignore[arg-type]


def _report(name: str, *, fails: bool = False) -> Report:
    failures = (TestFailure("test_x", "no"),) if fails else ()
    suites = (SuiteResult("pins", 1, (), (), 1.0), SuiteResult("horovod", 1, failures, (), 1.0))
    return Report(name, "sha256:1", "code", suites)


def _rows(*results: BuildResult, planned: int | None = None) -> list[str]:
    return build_lines(Build(results, planned or len(results))).splitlines()


def test_many_images_have_their_suites_in_brief_and_totals(images: dict[str, Image]) -> None:
    chosen = [images[f"tf-{minor}-cpu-debian"] for minor in ("1.10", "1.11", "2.1", "2.2")]
    _, row, *_, last = _rows(_result(chosen[3]), planned=3)
    expected = "tagged built, tested 4m05s + 1m10s 1000 MB pins passed, horovod passed"
    assert " ".join(row.split()) == f"{chosen[3].name} {expected}"
    assert all(fact in last for fact in ("2 images", "--keep-going"))
    failed: dict[str, Any] = {"tagged": False, "error": CheckFailedError("no")}
    rows = _rows(
        _result(chosen[0]),
        _result(chosen[1], report=_report(chosen[1].name, fails=True), **failed),
        _result(chosen[2], Action.NOTHING, report=None, build_seconds=0.0, test_seconds=0.0),
        _result(chosen[3], image_id=None, report=None, size=0, **failed),
    )
    _, good, bad, idle, broken, totals = (" ".join(row.split()) for row in rows)
    assert good.endswith(" 2 passed")
    assert bad.endswith(" horovod FAILED, 1 passed")
    assert idle == f"{chosen[2].name} up to date 1000 MB"
    assert broken.startswith(f"{chosen[3].name} failed ")
    assert "built" not in broken
    assert totals == "4 images: 1 tagged, 1 suites failed, 1 up to date, 1 failed."


def test_the_usage_names_the_engine_and_what_the_image_needs(images: dict[str, Image]) -> None:
    said = usage_lines([images["tf-1.12-gpu-ubuntu"]], "unix:///x")
    assert said.count("docker -H unix:///x run --rm --pull never ") == 3
    assert said.count(" --gpus all ") == 3
    assert "--oversubscribe" not in said  # Intel's knows no --oversubscribe


@pytest.mark.parametrize("fails", [False, True])
def test_an_image_is_tested_and_named_as_soon_as_it_is_built(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """Whatever becomes of the others of its bake."""

    def bake(*arguments: object, exported: Callable[..., None], **more: object) -> object:
        bench.broken = set()
        built = bench.bake(*arguments, **more)  # type: ignore[arg-type]
        exported(OLD, built[OLD])
        wait_for(lambda: bench.tags(OLD) <= bench.tags())
        bench.broken = {NEW} if fails else set()
        return bench.bake(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("imgbuild.build.bake_images.run_bake", bake)
    assert bench.states() == {OLD: "done", NEW: "failed" if fails else "done"}
    assert sorted(bench.tested) == [OLD, *([] if fails else [NEW])]


def test_on_a_containerd_store_the_phases_are_baked_one_after_the_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = replace(fake_engine.VERSION, containerd_store=True)
    monkeypatch.setattr(fake_engine, "VERSION", version)
    assert bench.states() == {OLD: "done", NEW: "done"}
    assert bench.baked == [[OLD], [NEW]]
