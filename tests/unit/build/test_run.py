"""The pipeline of ``imgbuild build``, on an engine in memory."""

import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.build.context import image_locks
from imgbuild.cli.build_command import build_lines
from imgbuild.core.errors import CheckFailedError, ImgbuildError, InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.core.sources import Source
from imgbuild.engine.build import BuildTarget
from imgbuild.engine.discovery import Buildx
from imgbuild.engine.failure import FAULTS, BuildFailedError
from imgbuild.engine.faults import EngineUnusableError
from imgbuild.engine.types import Layer, StoredImage
from imgbuild.inputs.base import BOOTSTRAPPED, Base
from imgbuild.inputs.build_inputs import ImageDownloads
from imgbuild.matrix.images import Image
from support.bench import INPUTS, NEW, OLD, Bench, with_budget
from support.project_copy import copied
from support.waiting import wait_for

CHANGED = replace(INPUTS, uv_version="99")


def test_image_that_passed_gets_its_tags_once(bench: Bench) -> None:
    assert bench.states() == {OLD: "done", NEW: "done"}
    assert bench.tags() == bench.tags(OLD) | bench.tags(NEW)
    assert bench.baked == [OLD, NEW]
    assert bench.states() == {OLD: "up to date", NEW: "up to date"}
    assert len(bench.baked) == 2
    assert sorted(bench.tested) == [OLD, NEW]


def test_failed_image_has_no_tags_and_is_tested_again(bench: Bench) -> None:
    bench.faulty = {NEW}
    old, new = bench.build()
    assert (old.state, new.state) == ("done", "suites failed")
    assert "horovod: test_x" in str(new.error)
    assert bench.tags() == bench.tags(OLD)
    bench.faulty = set()
    assert bench.states() == {OLD: "up to date", NEW: "done"}
    assert len(bench.baked) == 2


def test_new_image_gets_the_tags_after_it_passed(bench: Bench) -> None:
    bench.build()
    before = bench.engine.inspect(bench.context.images[1].tags[0])
    bench.change(inputs=CHANGED)
    bench.faulty = {NEW}
    bench.build()
    assert bench.engine.inspect(bench.context.images[1].tags[0]) == before
    bench.faulty = set()
    assert all(result.ok for result in bench.build())
    assert len(bench.engine.stored) == 2


@pytest.mark.parametrize("test", [True, False])
def test_images_without_records_are_built_again(bench: Bench, test: bool) -> None:
    """Their steps come from BuildKit's cache; the images that they replace stay."""
    bench.build(test=test)
    assert not any(item.has_work for item in bench.plan(test=test))
    before = {*bench.engine.stored}
    shutil.rmtree(bench.context.store.folder)
    assert {str(item.action) for item in bench.plan(test=test)} == {"build"}
    assert all(result.ok for result in bench.build(test=test))
    assert {item.image_id for item in bench.plan(test=test)}.isdisjoint(before)
    assert before < {*bench.engine.stored}


def test_an_image_without_a_record_is_not_own(bench: Bench) -> None:
    """Its labels and its name are right, as after `docker pull` and `docker tag` of anybody's."""
    bench.build()
    image = bench.context.images[0]
    assert bench.context.need_own(image).id == bench.plan()[0].image_id
    shutil.rmtree(bench.context.store.folder)
    with pytest.raises(InputError, match="There is no record that this machine built"):
        bench.context.need_own(image)
    bench.context.store.save(bench.context.engine.need(image.tags[0]).id, {}, ())
    with pytest.raises(InputError, match="There is no record"):
        bench.context.need_own(image)


def test_an_untagged_image_that_others_may_be_testing_stays(bench: Bench) -> None:
    """They share the engine; only what this state folder has built goes.

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
        bench.context.store.import_results(one.id, {}, built=True)
    bench.change(inputs=CHANGED)
    bench.build()
    assert {theirs.id, another.id} <= {*stored}
    assert mine.id not in stored
    assert first.id not in stored


def test_build_separates_families_of_two_repositories(bench: Bench) -> None:
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


def test_another_image_of_the_same_inputs_is_no_predecessor(bench: Bench) -> None:
    bench.build()
    stored = bench.engine.stored[bench.plan()[0].image_id or ""]
    twin = replace(stored, id="sha256:twin", tags=())
    bench.context.store.import_results(twin.id, {}, built=True)
    bench.engine.stored |= {twin.id: twin, stored.id: replace(stored, tags=())}
    bench.build()
    assert {stored.id, twin.id} <= {*bench.engine.stored}


def test_what_is_about_to_be_tested_is_remembered_before(bench: Bench) -> None:
    """A killed test leaves it untagged, and `imgbuild clean` must know whose it is."""
    bench.suite_error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench.build(jobs=1)
    assert all(bench.context.store.was_to_test(one) for one in bench.engine.stored)
    assert not bench.context.store.was_to_test("sha256:other")


def test_only_a_changed_suite_is_run_again(bench: Bench, project: Project, tmp_path: Path) -> None:
    checkout = copied(project, tmp_path / "checkout")
    bench.change(project=checkout)
    bench.build()
    bench.suites_run.clear()
    with (checkout.suites / "test_pins.py").open("a") as file:
        file.write("# changed\n")
    (first, _) = bench.build()
    assert bench.suites_run == [("pins",)] * 2
    assert first.report is not None
    assert {s.suite for s in first.report.suites if s.before} >= {"horovod", "tensorflow"}
    bench.suites_run.clear()
    with (checkout.suites / "container.py").open("a") as file:
        file.write("# changed\n")
    bench.build()
    assert len(bench.suites_run[0]) > 1
    assert bench.states() == {OLD: "up to date", NEW: "up to date"}


@pytest.mark.parametrize("test", [True, False])
def test_an_image_over_its_budget_is_not_tested_and_gets_no_tag(
    bench: Bench, *, test: bool
) -> None:
    images = bench.context.images
    # The sum of its layers counts, not the size that its store gives to the image.
    bench.engine.histories[f"sha256:{0:064}"] = [Layer(None, 999_000_000, "COPY")]
    bench.change(images=(with_budget(images[0], 900), with_budget(images[1], 1000)))
    old, new = bench.build(test=test, keep_going=True)
    assert (old.state, new.state) == ("failed", "done")
    assert "budget of 900 MB" in str(old.error)
    assert (old.size, bench.tested) == (999_000_000, [NEW] * test)
    assert bench.tags() == bench.tags(NEW)
    bench.change(images=(with_budget(images[0], 953), images[1]))
    assert all(result.ok for result in bench.build())
    assert len(bench.baked) == 2  # a larger budget builds nothing again
    bench.change(images=(with_budget(images[0], 900), images[1]))
    bench.pretend_standin()  # what has no budget, and can never be pushed:
    bench.engine.stored.clear()
    assert all(result.ok for result in bench.build())


def test_a_second_build_is_refused_and_keeps_no_other_lock(tmp_path: Path) -> None:
    with image_locks(["b"], None, tmp_path):
        refused = pytest.raises(MachineError, match=rf"b is being built, .*process {os.getpid()}")
        with refused, image_locks(["a", "b"], None, tmp_path):
            pass
        with image_locks(["a"], None, tmp_path), image_locks(["b"], "tcp://x:2375", tmp_path):
            pass


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_locks_are_taken_in_one_order(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Whatever the order of the selection: two builds would wait for each other's image."""
    refused = pytest.raises(MachineError, match="a is being built")
    with image_locks(["a", "b"], None, tmp_path), refused, image_locks(names, None, tmp_path):
        pass


def test_a_failure_stops_the_other_images_unless_it_keeps_going(bench: Bench) -> None:
    bench.broken = {OLD}
    assert bench.states() == {OLD: "failed"}
    assert bench.tags() == set()
    assert bench.states(keep_going=True) == {OLD: "failed", NEW: "done"}
    assert bench.tags() == bench.tags(NEW)
    bench.broken, bench.faulty = set(), {OLD, NEW}
    bench.engine.stored.clear()
    bench.tested.clear()
    assert bench.states(jobs=1) == {OLD: "suites failed"}
    assert bench.tested == [OLD]
    assert bench.states(jobs=1, keep_going=True) == {OLD: "suites failed", NEW: "suites failed"}


@pytest.mark.parametrize(
    ("kind", "faulty", "error"),
    [
        ("unreachable", set(), MachineError),
        ("unreachable", {NEW}, CheckFailedError),
        ("disk", set(), MachineError),
        ("engine", set(), MachineError),
    ],
)
def test_lost_engine_fails_all_images_upstream_one(
    bench: Bench, kind: str, faulty: set[str], error: type[ImgbuildError]
) -> None:
    """It is an error of the machine only if no image is at fault."""
    bench.broken, bench.fault = {OLD}, next(one for one in FAULTS if one.kind == kind)
    bench.faulty = faulty
    build = bench.run(keep_going=True)
    old, *others = build.results
    assert isinstance(old.error, BuildFailedError)
    assert old.error.exit_code == MachineError.exit_code
    if kind == "unreachable":
        assert bench.baked == [OLD, NEW]
        assert others[0].tagged is not bool(faulty)
    else:
        assert (bench.baked, others) == ([OLD], [])
    assert isinstance(build.failure(), error)
    assert f"{OLD} was not tagged: Building {OLD} failed" in str(build.failure())


def _missing(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    missing: Source,
    error: ImgbuildError,
    **files: Source,
) -> list[Source]:
    """Let a file be missing; return which files of the images are fetched."""
    each = {OLD: files["old"], NEW: files["new"]}
    downloads = {name: ImageDownloads({"downloads": (of,)}, {}) for name, of in each.items()}
    bench.change(inputs=replace(INPUTS, downloads=downloads))
    fetched: list[Source] = []

    def context(files: Iterable[Source], failed: dict[Source, ImgbuildError], **_: object) -> Path:
        fetched.extend(files)
        if missing in files:
            failed[missing] = error
            raise error
        return Path("/downloads")

    monkeypatch.setattr("imgbuild.build.prepare.prepare_downloads", context)
    return fetched


@pytest.mark.parametrize("error", [MachineError, CheckFailedError])
def test_missing_download_fails_only_its_image(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: type[ImgbuildError]
) -> None:
    alone, other = (Source(name, f"https://x/{name}", "0" * 64) for name in ("alone", "other"))
    fetched = _missing(bench, monkeypatch, alone, error("no such site"), old=alone, new=other)
    loaded: list[object] = []
    monkeypatch.setattr("imgbuild.build.prepare.provide_base", lambda *base: loaded.append(base))
    assert bench.states() == {OLD: "failed"}
    assert (fetched, len(loaded)) == ([alone], 1)
    assert bench.states(keep_going=True) == {OLD: "failed", NEW: "done"}
    assert bench.baked == [NEW]


def test_missing_cpython_source_is_reported_once(
    bench: Bench, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = images[NEW]
    assert image.python.origin == "source"
    source = Source("Python", image.matrix.sources[image.python.source].url, "0" * 64)
    error = MachineError("no such site")
    fetched = _missing(bench, monkeypatch, source, error, old=source, new=source)
    failure = bench.run(keep_going=True).failure()
    assert (fetched, bench.baked) == ([source], [])
    assert isinstance(failure, MachineError)
    assert str(failure).startswith(f"{OLD}, {NEW} were not tagged: no such site")
    assert str(failure).count("doctor --write") == 1
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    elsewhere = bench.run(keep_going=True).failure()
    assert "doctor --write" not in str(elsewhere), "its CPython is for other images"


def test_a_missing_base_concerns_only_the_images_on_it(
    bench: Bench, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = images["tf-2.2-cpu-ubuntu"]
    bench.use(other, images[NEW])
    broken = bench.context.inputs.bases[other.os_name]

    def provide(_image: object, _settings: object, base: Base, *_: object) -> None:
        if base is broken:
            raise MachineError("the base is damaged")

    monkeypatch.setattr("imgbuild.build.prepare.provide_base", provide)
    first, second = bench.build(keep_going=True)
    assert (first.state, second.state) == ("failed", "done")
    assert str(first.error) == "the base is damaged"


@pytest.mark.parametrize(
    ("found", "loads"),
    [("config", False), ("manifest", False), ("forged", True), ("damaged", False)],
)
def test_base_in_the_engine_counts_by_its_id(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str, loads: bool
) -> None:
    """Whoever can put an image into the engine can give it the name of a base."""

    def require_whole(_: object) -> None:
        if found == "damaged":
            raise MachineError("the base is damaged")

    ids = ("sha256:config", "sha256:manifest")
    base = Base("imgbuild/base:debian-12-1", ids[0], BOOTSTRAPPED, tmp_path, ids)
    monkeypatch.setattr("imgbuild.build.bases.require_whole", require_whole)
    bench.change(inputs=replace(INPUTS, bases={"debian-12": base}))
    bench.engine.stored["base"] = StoredImage(f"sha256:{found}", (base.reference,))
    loaded: list[object] = []
    monkeypatch.setattr("imgbuild.build.bases.write_archive", lambda _, path: path.touch())
    monkeypatch.setattr(bench.engine, "load", loaded.append)
    errors = {str(result.error) for result in bench.build() if result.error}
    assert errors == ({"the base is damaged"} if found == "damaged" else set())
    assert bool(loaded) is loads
    assert bool(bench.baked) is not bool(errors)


def test_an_error_of_a_test_run_or_a_wheel_concerns_that_image(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export(_buildx: object, target: BuildTarget, *_: object, **__: object) -> float:
        if target.name.startswith(OLD):
            raise bench.build_error(target.name)
        return 0.0

    bench.suite_error = MachineError("no container could be started")
    old, new = bench.build(keep_going=True, jobs=1)
    assert (str(old.error), type(old.error)) == ("no container could be started", MachineError)
    assert (old.state, new.state) == ("failed", "done")
    bench.engine.stored.clear()
    monkeypatch.setattr("imgbuild.build.image_build.export_files", export)
    old, new = bench.build(keep_going=True)
    assert (type(old.error), new.state) == (BuildFailedError, "done")


def test_when_the_engine_is_lost_no_further_image_begins(bench: Bench) -> None:
    bench.suite_error = EngineUnusableError("it does not answer")
    (old,) = bench.build(keep_going=True, jobs=1)
    assert (old.name, type(old.error)) == (OLD, EngineUnusableError)
    assert bench.tested == []
    bench.change(images=bench.context.images[::-1])
    bench.engine.stored.clear()
    build = bench.run(keep_going=True, jobs=1)
    assert {one.name: one.state for one in build.results} == {NEW: "done", OLD: "failed"}
    assert str(build.failure()).startswith(f"{OLD} was not tagged: it does not answer")
    assert isinstance(build.failure(), MachineError)


def test_build_stops_at_an_error_of_the_engine(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise EngineUnusableError("it does not answer")

    monkeypatch.setattr("imgbuild.build.pipeline.prepare", fail)
    build = bench.run(keep_going=True)
    assert (build.results, type(build.failure())) == ((), EngineUnusableError)
    assert "--keep-going" not in build_lines(build)
    monkeypatch.setattr("imgbuild.engine.discovery.find_buildx", fail)
    monkeypatch.setattr("imgbuild.build.pipeline.prepare", lambda *_: pytest.fail("fetched"))
    with pytest.raises(EngineUnusableError):
        bench.run()


def test_after_a_failure_nothing_is_fetched(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suites of an image that is there fail; the other would have to be built."""
    both = bench.context.images
    bench.change(images=both[:1])
    bench.build(test=False)
    bench.change(images=both)
    bench.faulty = {OLD}
    monkeypatch.setattr("imgbuild.build.pipeline.prepare", lambda *_: pytest.fail("fetched"))
    assert bench.states() == {OLD: "suites failed"}


def test_the_table_has_a_row_for_each_image_and_totals(bench: Bench) -> None:
    def table(**options: object) -> list[str]:
        lines = build_lines(bench.run(**options)).splitlines()
        return [" ".join(line.split()) for line in lines]

    bench.faulty = {NEW}
    _, good, bad, last = table()
    assert good.startswith(f"{OLD} tagged built, tested ")
    assert good.partition("1000 MB ")[2].endswith(" passed")
    assert bad.startswith(f"{NEW} suites failed built, tested ")
    assert " horovod FAILED, " in bad
    assert last == "2 images: 1 tagged, 1 suites failed."
    bench.engine.stored = {i: one for i, one in bench.engine.stored.items() if one.tags}
    bench.faulty, bench.broken = set(), {NEW}
    _, idle, broken, last = table()
    assert idle.startswith(f"{OLD} up to date")
    assert broken.startswith(f"{NEW} failed ")
    assert last == "2 images: 1 up to date, 1 failed."


@pytest.mark.parametrize("keep_going", [False, True])
def test_an_image_is_tested_and_named_while_another_is_built(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, keep_going: bool
) -> None:
    """Whatever becomes of the other; a failure stops what is being built, unless it keeps going."""

    def make(
        buildx: Buildx,
        target: BuildTarget,
        *,
        stopped: Callable[[], bool],
        **more: object,
    ) -> tuple[str, float]:
        if target.name == NEW:
            wait_for(lambda: OLD in bench.tested)
            if not keep_going:
                wait_for(stopped)
                raise CancelledError
        return bench.make_image(buildx, target, **more)

    monkeypatch.setattr("imgbuild.build.workers.WORKERS", 2)
    monkeypatch.setattr("imgbuild.build.image_build.build_image", make)
    bench.faulty = {OLD}
    build = bench.run(keep_going=keep_going)
    states = {result.name: result.state for result in build.results}
    assert states == {OLD: "suites failed", NEW: "done" if keep_going else "cancelled"}
    assert bench.tags() == (bench.tags(NEW) if keep_going else set())
    assert isinstance(build.failure(), CheckFailedError)


def test_images_of_one_stack_and_python_follow_each_other(
    bench: Bench, images: dict[str, Image]
) -> None:
    names = (NEW, "tf-2.12-cpu-debian", OLD, "tf-2.2-cpu-ubuntu")
    bench.use(*(images[name] for name in names))
    assert {result.name for result in bench.build()} == {*names}
    assert bench.baked == ["tf-2.12-cpu-debian", NEW, OLD, "tf-2.2-cpu-ubuntu"]


def test_one_cause_of_several_failures_is_told_once(bench: Bench) -> None:
    bench.broken = {OLD, NEW}
    failure = str(bench.run(keep_going=True).failure())
    assert failure.startswith(f"{OLD}, {NEW} were not tagged: Building {OLD} failed in the step")
    assert failure.count("exit code 1") == 1
