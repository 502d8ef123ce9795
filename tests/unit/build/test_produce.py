"""The gate, without an engine: only what passed gets a name, and a failure leaves the old one."""

import io
import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import fake_engine
import pytest
from fake_engine import FakeEngine

from imgbuild.build.display import BuildDisplay
from imgbuild.build.options import BuildOptions
from imgbuild.build.outcome import Outcome
from imgbuild.build.produce import produce
from imgbuild.build.workshop import Workshop
from imgbuild.engine.bake import BakeTarget, BuildFailedError, BuiltImage
from imgbuild.engine.buildx import Buildx
from imgbuild.engine.failure import BuildFailure
from imgbuild.engine.types import StoredImage
from imgbuild.inputs.build_inputs import BaseInput, BuildInputs, ImageDownloads, InterpreterInput
from imgbuild.matrix.images import Image
from imgbuild.plan.plan import Action
from imgbuild.project import Project
from imgbuild.settings import StandIn
from imgbuild.sites import Sites
from imgbuild.suites.results import Report, SuiteResult, TestFailure
from imgbuild.suites.runner import SuiteRun

OLD, NEW = "tf-1.10-cpu-debian", "tf-2.2-cpu-debian"
INPUTS = BuildInputs(
    {"debian-12": BaseInput("debian@sha256:abc", "sha256:abc", "registry")},
    {"3.6.15": InterpreterInput(Path("/prefix"), "sha256:p", "local prefix")},
    Path("/uv"),
    "0.13.8",
    secrets={"ca": Path("/ca.pem")},
    downloads={OLD: ImageDownloads({}, {}), NEW: ImageDownloads({}, {"SHA256_X": "f" * 64})},
)


EPOCH, EPOCH_SECONDS = "2026-11-01T00:00:00Z", 1793491200


@dataclass
class Bench:
    """A workshop on an engine in memory; ``broken`` images do not build, ``faulty`` do not pass."""

    workshop: Workshop
    engine: FakeEngine
    images: tuple[Image, ...]
    broken: set[str] = field(default_factory=set)
    faulty: set[str] = field(default_factory=set)
    baked: list[list[str]] = field(default_factory=list)
    tested: list[str] = field(default_factory=list)
    suites_run: list[tuple[str, ...]] = field(default_factory=list)

    def build(self, **options: bool | int) -> list[Outcome]:
        chosen = replace(BuildOptions(), **options)  # type: ignore[arg-type]
        plan = self.workshop.plan(self.images, test=chosen.test)
        order = [item.image.name for item in plan]
        outcomes = produce(plan, self.workshop, chosen)
        return sorted(outcomes, key=lambda one: order.index(one.item.image.name))

    def names(self) -> set[str]:
        return {tag for image in self.engine.stored.values() for tag in image.tags}

    def bake(self, _buildx: object, _host: object, targets: Sequence[BakeTarget], **_: object):  # type: ignore[no-untyped-def]  # noqa: ANN201
        images = [one for one in targets if one.output == "type=docker"]
        self.baked.append([target.name for target in images])
        failed = tuple(t.name for t in images if t.name in self.broken)
        if failed:
            rest = tuple(t.name for t in images if t.name not in self.broken)
            raise BuildFailedError(
                BuildFailure(failed, rest, (), "[horovod 2/2] RUN", "exit code 1", (), Path("log"))
            )
        return {target.name: self._store(target) for target in images}

    def _store(self, target: BakeTarget) -> BuiltImage:
        image_id = f"sha256:{len(self.engine.stored):064}"
        made = {"imgbuild.name": target.name, "org.opencontainers.image.created": EPOCH}
        labels = {**made, **target.labels}
        self.engine.stored[image_id] = StoredImage(image_id, (), labels, 10**9, EPOCH_SECONDS)
        return BuiltImage(image_id, image_id)

    def suites(self, run: SuiteRun, *_: object) -> Report:
        name = run.target.name
        self.tested.append(name)
        self.suites_run.append(run.suites)
        failures = (TestFailure("test_x", "no"),) if name in self.faulty else ()
        results = tuple(SuiteResult(name, 1, failures, (), 1.0) for name in run.suites)
        from imgbuild.suites.catalog import code_digest

        code = code_digest(self.workshop.project.suites)
        return Report(name, run.target.image_id, code, results)


@pytest.fixture
def bench(
    images: dict[str, Image], project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Bench:
    engine = FakeEngine()
    workshop = Workshop(
        project,
        engine,
        None,
        Buildx(Path("/buildx"), "0"),
        INPUTS,
        tmp_path,
        tmp_path / "reports",
        BuildDisplay([]),
        tmp_path / "cache",
        Sites(),
    )
    made = Bench(workshop, engine, (images[OLD], images[NEW]))
    monkeypatch.setattr("imgbuild.build.bake.run_bake", made.bake)
    monkeypatch.setattr("imgbuild.suites.session.run_suites", made.suites)
    return made


def _states(outcomes: list[Outcome]) -> dict[str, str]:
    return {outcome.item.image.name: outcome.state for outcome in outcomes}


def _tags(bench: Bench, name: str) -> set[str]:
    return {tag for image in bench.images if image.name == name for tag in image.tags}


def test_what_passed_gets_its_names(bench: Bench) -> None:
    assert _states(bench.build()) == {OLD: "done", NEW: "done"}
    assert bench.names() == _tags(bench, OLD) | _tags(bench, NEW)


def test_a_second_build_has_nothing_to_do(bench: Bench) -> None:
    bench.build()
    assert _states(bench.build()) == {OLD: "up to date", NEW: "up to date"}
    assert len(bench.baked) == 1
    assert sorted(bench.tested) == [OLD, NEW]


def test_what_failed_its_suites_gets_no_name(bench: Bench) -> None:
    bench.faulty = {NEW}
    outcomes = bench.build()
    assert _states(outcomes) == {OLD: "done", NEW: "suites failed"}
    (failed,) = (outcome for outcome in outcomes if not outcome.ok)
    assert "horovod: test_x" in (failed.error or "")
    assert bench.names() == _tags(bench, OLD)


def test_an_image_that_somebody_built_on_top_is_never_taken_for_the_image(bench: Bench) -> None:
    """It inherits every label; only its time of creation tells."""
    bench.build()
    stored = bench.engine.stored
    theirs = {}
    for number, image in enumerate(stored.values()):
        changed = replace(image, id=f"sha256:{900 + number:064}", tags=(), created=1)
        theirs[changed.id] = changed
    stored.clear()
    stored.update(theirs)
    outcomes = bench.build()
    assert {outcome.item.action for outcome in outcomes} == {Action.BUILD}
    assert all(stored[one].tags == () for one in theirs)


def test_after_failed_suites_the_image_is_tested_again_not_built(bench: Bench) -> None:
    bench.faulty = {NEW}
    bench.build()
    bench.faulty = set()
    assert _states(bench.build()) == {OLD: "up to date", NEW: "done"}
    assert len(bench.baked) == 1


def test_a_failed_successor_leaves_the_old_image_its_names(bench: Bench) -> None:
    bench.build()
    before = bench.engine.inspect(bench.images[1].tags[0])
    changed = replace(bench.workshop.inputs, uv_version="99")
    bench.workshop = replace(bench.workshop, inputs=changed)
    bench.faulty = {NEW}
    bench.build()
    assert bench.engine.inspect(bench.images[1].tags[0]) == before


def test_a_successor_that_passed_takes_the_names_and_the_old_image_goes(bench: Bench) -> None:
    bench.build()
    bench.workshop = replace(bench.workshop, inputs=replace(INPUTS, uv_version="99"))
    assert _states(bench.build()) == {OLD: "done", NEW: "done"}
    assert len(bench.engine.stored) == 2


def test_a_nameless_image_that_others_may_be_testing_stays(bench: Bench) -> None:
    """They share the engine; only what this state folder tested, or unnamed just now, goes."""
    bench.build()
    stored = bench.engine.stored
    first = next(iter(stored.values()))
    labels = {**first.labels, "imgbuild.input-digest": "sha256:other"}
    theirs, mine = (
        replace(first, id=f"sha256:{number:064}", tags=(), labels=labels) for number in (901, 902)
    )
    stored.update({one.id: one for one in (theirs, mine)})
    bench.workshop.store.begin(mine.id)
    bench.workshop = replace(bench.workshop, inputs=replace(INPUTS, uv_version="99"))
    bench.build()
    assert theirs.id in stored
    assert mine.id not in stored
    assert first.id not in stored


def test_without_what_it_remembered_the_predecessor_goes_all_the_same(bench: Bench) -> None:
    bench.build()
    shutil.rmtree(bench.workshop.store.folder)
    bench.workshop = replace(bench.workshop, inputs=replace(INPUTS, uv_version="99"))
    bench.build()
    assert len(bench.engine.stored) == 2


def test_what_is_about_to_be_tested_is_remembered_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed test leaves it nameless, and `imgbuild clean` must know whose it is."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("imgbuild.build.gates.pass_gate", killed)
    with pytest.raises(KeyboardInterrupt):
        bench.build(jobs=1)
    assert all(bench.workshop.store.knows(one) for one in bench.engine.stored)
    assert not bench.workshop.store.knows("sha256:other")


def test_the_whole_plan_is_one_bake(bench: Bench) -> None:
    bench.build(jobs=1)
    assert bench.baked == [[OLD, NEW]]


def test_a_failed_build_cancels_the_others(bench: Bench) -> None:
    bench.broken = {OLD}
    outcomes = bench.build()
    assert _states(outcomes) == {OLD: "failed", NEW: "failed"}
    assert outcomes[1].error == f"cancelled, since {OLD} failed"
    assert bench.names() == set()


def test_keep_going_builds_the_rest(bench: Bench) -> None:
    bench.broken = {OLD}
    assert _states(bench.build(keep_going=True)) == {OLD: "failed", NEW: "done"}
    assert bench.names() == _tags(bench, NEW)


def test_a_wheel_that_cannot_be_compiled_is_its_images_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bake may blame the target that exports the wheel, which has a name of its own."""

    def bake(*given: object, **more: object) -> object:
        try:
            return bench.bake(*given, **more)  # type: ignore[arg-type]
        except BuildFailedError as error:
            failed = (f"{OLD}-horovod-wheel",)
            raise BuildFailedError(replace(error.failure, failed=failed)) from error

    monkeypatch.setattr("imgbuild.build.bake.run_bake", bake)
    bench.broken = {OLD}
    outcomes = bench.build(keep_going=True)
    assert _states(outcomes) == {OLD: "failed", NEW: "done"}
    assert f"Building {OLD} failed" in (outcomes[0].error or "")


def test_with_keep_going_failed_suites_stop_nothing(bench: Bench) -> None:
    bench.faulty = {OLD}
    assert _states(bench.build(jobs=1, keep_going=True)) == {OLD: "suites failed", NEW: "done"}


def test_without_it_no_further_image_is_tested(bench: Bench) -> None:
    bench.faulty = {OLD}
    assert _states(bench.build(jobs=1)) == {OLD: "suites failed"}
    assert bench.tested == [OLD]


def test_without_tests_the_name_is_given_at_once(bench: Bench) -> None:
    assert _states(bench.build(test=False)) == {OLD: "done", NEW: "done"}
    assert bench.tested == []


def test_a_build_without_tests_is_tested_later(bench: Bench) -> None:
    bench.build(test=False)
    assert [item.action for item in bench.workshop.plan(bench.images, test=True)] == ["test"] * 2


def test_the_target_has_labels_contexts_and_the_secret(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[BakeTarget] = []

    def spy(bake: Callable[..., object]) -> Callable[..., object]:
        def call(
            buildx: object, host: object, targets: Sequence[BakeTarget], **more: object
        ) -> object:
            seen.extend(targets)
            assert more["epoch"] == 1793491200
            return bake(buildx, host, targets, **more)

        return call

    monkeypatch.setattr("imgbuild.build.bake.run_bake", spy(bench.bake))
    bench.build()
    target = next(one for one in seen if one.name == NEW)
    assert target.contexts == {
        "base": "docker-image://debian@sha256:abc",
        "uv": "/uv",
        "cpython": "/prefix",
    }
    assert target.secrets == ("id=ca,src=/ca.pem",)
    assert target.tags == ()
    assert target.args == {"SHA256_X": "f" * 64}
    assert target.labels["imgbuild.input.substitutes"] == "SHA256_X"
    assert "imgbuild.standin" not in target.labels
    assert target.labels["imgbuild.input.cpython"] == "local prefix"
    assert target.labels["org.opencontainers.image.base.digest"] == "sha256:abc"


def test_what_stand_ins_built_says_so_and_can_never_be_pushed(
    bench: Bench,
) -> None:
    standin = StandIn(note="upstreams of the tests")
    bench.workshop = replace(
        bench.workshop, standin=standin, inputs=replace(INPUTS, standin=standin.note)
    )
    bench.build()
    labels = [image.labels["imgbuild.standin"] for image in bench.engine.stored.values()]
    assert labels == ["upstreams of the tests"] * 2
    # RFC 2606: no registry can ever be called .invalid.
    assert all(name.startswith("standin.invalid/") for name in bench.names())


def test_containers_of_a_killed_run_go_and_others_stay(bench: Bench) -> None:
    from imgbuild.build.gate import remove_leftovers
    from imgbuild.suites.container import label_of

    bench.build(test=False)
    image = bench.images[0].tags[0]
    for name in (OLD, "tf-9"):
        bench.engine.start(image, command=["sleep"], labels={"imgbuild.test-of": label_of(name)})
    remove_leftovers(bench.images, bench.workshop)
    left = [c.labels["imgbuild.test-of"] for c in bench.engine.running.values()]
    assert left == [label_of("tf-9")]


def test_only_a_changed_suite_is_run_again(bench: Bench, project: Project, tmp_path: Path) -> None:
    copied = tmp_path / "checkout" / "tests" / "image"
    shutil.copytree(project.suites, copied, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("images", "matrix.yaml"):
        (tmp_path / "checkout" / name).symlink_to(project.root / name)
    bench.workshop = replace(bench.workshop, project=Project(tmp_path / "checkout"))
    bench.build()
    assert set(bench.suites_run[0]) == set(bench.suites_run[1])
    bench.suites_run.clear()
    with (copied / "test_pins.py").open("a") as file:
        file.write("# changed\n")
    (first, _) = bench.build()
    assert first.ok
    assert bench.suites_run == [("pins",)] * 2
    assert first.report is not None
    assert {s.suite for s in first.report.suites if s.before} >= {"horovod", "tensorflow"}
    bench.suites_run.clear()
    with (copied / "container.py").open("a") as file:
        file.write("# changed\n")
    bench.build()
    assert len(bench.suites_run[0]) > 1
    assert _states(bench.build()) == {OLD: "up to date", NEW: "up to date"}


def test_the_tables_say_what_happened(bench: Bench) -> None:
    from imgbuild.cli.build_tables import outcome_lines
    from imgbuild.cli.plan_table import plan_lines, usage_lines

    plan = bench.workshop.plan(bench.images, test=True)
    assert plan_lines(plan).splitlines() == [
        "tf-1.10-cpu-debian  build    never built here",
        "tf-2.2-cpu-debian   build    never built here",
        "Something to do for 2 of 2.",
    ]
    bench.faulty = {NEW}
    text = outcome_lines(bench.build(), 2)
    assert "contents passed, frameworks passed, horovod passed" in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert rows[0] == "image verdict done time size suites"
    assert rows[1].startswith("tf-1.10-cpu-debian named built, tested ")
    assert rows[2].startswith("tf-2.2-cpu-debian suites failed built, tested ")
    assert " 1000 MB " in rows[2]
    assert rows[3] == "2 images: 1 named, 1 suites failed."
    bench.faulty = set()
    bench.build()
    assert outcome_lines(bench.build(), 2).startswith("Nothing to do: 2 images are up to date")
    assert "docker -H unix:///x run" in usage_lines(bench.images[1], "unix:///x")
    assert "\n  docker run" in usage_lines(bench.images[1], "unix:///var/run/docker.sock")
    assert "mpirun -np 2 --oversubscribe python" in usage_lines(bench.images[1], None)


def test_how_to_use_says_what_the_image_needs(images: dict[str, Image]) -> None:
    from imgbuild.cli.plan_table import usage_lines

    intel = usage_lines(images["tf-1.12-gpu-ubuntu"], None)
    assert "docker run --rm --gpus all -v" in intel
    assert "mpirun -np 2 python" in intel  # Intel's knows no --oversubscribe
    assert "--gpus" not in usage_lines(images["tf-2.2-cpu-ubuntu"], None)


def _agreed(image: Image, megabytes: int) -> Image:
    return replace(image, row=image.row.model_copy(update={"budget": {"cpu": megabytes}}))


def test_an_image_over_its_budget_is_not_tested_and_gets_no_name(bench: Bench) -> None:
    bench.images = (_agreed(bench.images[0], 900), _agreed(bench.images[1], 1000))
    old, new = bench.build(keep_going=True)
    assert (old.state, new.state) == ("failed", "done")
    assert old.error is not None
    assert old.error.startswith("it has 1000 MB, 11.1 % more than its budget of 900 MB")
    assert (old.size, bench.tested) == (10**9, [NEW])
    assert _tags(bench, OLD).isdisjoint(bench.names())
    assert len(bench.baked) == 1
    bench.images = (_agreed(bench.images[0], 953), bench.images[1])
    assert all(outcome.ok for outcome in bench.build())
    assert len(bench.baked) == 1  # a larger budget builds nothing again


def test_what_is_built_from_stand_ins_has_no_budget(bench: Bench) -> None:
    bench.workshop = replace(bench.workshop, standin=StandIn(note="a test's"))
    bench.images = (_agreed(bench.images[0], 900), bench.images[1])
    assert all(outcome.ok for outcome in bench.build())


def test_on_a_containerd_store_the_files_are_counted_for_a_budget(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine says 1000 MB there, packed layers included; the files have 20 MB."""
    version = replace(fake_engine.VERSION, containerd_store=True)
    monkeypatch.setattr(fake_engine, "VERSION", version)
    layer, config = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        info = tarfile.TarInfo("a")
        info.size = 20_000_000
        tar.addfile(info, io.BytesIO(b"1" * info.size))
    with tarfile.open(fileobj=config, mode="w") as tar:
        for name, content in {
            "config.json": b'{"rootfs": {"diff_ids": ["sha256:a"]}}',
            "layer.tar": layer.getvalue(),
            "manifest.json": b'[{"Config": "config.json", "Layers": ["layer.tar"]}]',
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    bench.engine.archives = {f"sha256:{0:064}": config.getvalue()}
    bench.images = (_agreed(bench.images[0], 20),)
    (outcome,) = bench.build()
    assert (outcome.ok, outcome.size) == (True, 20_000_000)
    bench.images = (_agreed(bench.images[0], 10),)
    bench.engine.stored.clear()
    (outcome,) = bench.build()
    assert (outcome.ok, outcome.size) == (False, 20_000_000)
