# ruff: noqa: F811  # the fixture's name is also what tests call it
"""A build with caches, without an engine: what changes hands, and that no cache fails a build."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from test_produce import NEW, OLD, Bench, bench  # noqa: F401  # the fixture
from test_wheels import WHEEL, make_wheel

from imgbuild.build.cached import foreseen, keep, releasing, restored
from imgbuild.build.options import BuildOptions
from imgbuild.build.outcome import Outcome
from imgbuild.build.produce import produce
from imgbuild.build.wheels import wheel_key_of, wheel_store
from imgbuild.caches.place import FolderPlace, Place, RegistryPlace
from imgbuild.caches.several import open_caches
from imgbuild.plan.plan import Action

REF = "r.example.org/ci/cache"


@dataclass
class Machines:
    """Machines that share a cache and nothing else."""

    bench: Bench
    folder: Path
    place: Place
    said: list[str] = field(default_factory=list)
    count: int = 0

    def another(self) -> None:
        """Go to a machine whose engine, state and cache are empty; the registry is the same."""
        before, self.count = self.bench.engine, self.count + 1
        self.bench.engine = FakeEngine(registry=before.registry)
        self.bench.engine.contents = before.contents
        place = self.folder / f"machine-{self.count}"
        self.bench.workshop = replace(
            self.bench.workshop,
            engine=self.bench.engine,
            state=place,
            reports=place / "reports",
            cache=place / "cache",
        )
        self.bench.baked, self.bench.tested, self.said = [], [], []

    def build(
        self, *, read: bool = True, write: bool = True, test: bool = True
    ) -> dict[str, Outcome]:
        bench, places = self.bench, [self.place]
        caches = open_caches(
            places if read else [], places if write else [], bench.engine, self.said.append
        )
        bench.workshop = replace(bench.workshop, caches=caches)
        items = restored(bench.images, bench.workshop, test=test)
        with releasing(items, caches):
            options = BuildOptions(test=test, keep_going=True)
            outcomes = list(produce(items, bench.workshop, options))
        keep(outcomes, bench.workshop)
        return {outcome.item.image.name: outcome for outcome in outcomes}

    def actions(self, **how: bool) -> list[str]:
        return [str(outcome.item.action) for outcome in self.build(**how).values()]


@pytest.fixture(params=["folder", "registry"])
def machines(request: pytest.FixtureRequest, bench: Bench, tmp_path: Path) -> Machines:
    place = FolderPlace(tmp_path / "kept") if request.param == "folder" else RegistryPlace(REF)
    return Machines(bench, tmp_path, place)


def test_another_machine_neither_builds_nor_tests(machines: Machines) -> None:
    assert machines.actions() == ["build", "build"]
    names = machines.bench.names()
    machines.another()
    outcomes = machines.build()
    assert [str(one.item.action) for one in outcomes.values()] == ["name", "name"]
    assert outcomes[OLD].item.reason == f"taken from the cache {machines.place}"
    assert not machines.bench.baked
    assert not machines.bench.tested
    assert machines.bench.names() == names
    assert machines.actions() == ["nothing", "nothing"]


def test_what_is_kept_is_not_kept_again(machines: Machines) -> None:
    machines.build()
    assert len(machines.said) == 1
    machines.said.clear()
    calls = machines.bench.engine.calls
    calls.clear()
    machines.build()
    assert not {*calls} & {"push", "load"}
    assert not machines.said
    machines.another()
    machines.build()
    assert "push" not in machines.bench.engine.calls


def test_verdicts_that_the_cache_lacks_are_kept_with_nothing_to_do(machines: Machines) -> None:
    machines.build(test=False)
    machines.build(read=False, write=False)
    assert machines.actions() == ["nothing", "nothing"]
    machines.another()
    assert machines.actions() == ["name", "name"]


def test_only_what_passed_is_kept(machines: Machines) -> None:
    machines.bench.faulty = {NEW}
    machines.build()
    machines.another()
    assert {name: one.item.action for name, one in machines.build().items()} == {
        OLD: Action.NAME,
        NEW: Action.BUILD,
    }


def test_what_was_named_untested_is_tested_where_it_comes(machines: Machines) -> None:
    machines.build(test=False)
    machines.another()
    outcomes = machines.build()
    assert {one.item.action for one in outcomes.values()} == {Action.TEST}
    assert outcomes[OLD].item.reason.endswith("not tested yet")
    assert sorted(machines.bench.tested) == [OLD, NEW]
    assert not machines.bench.baked
    machines.another()
    assert machines.actions() == ["name", "name"]  # the verdicts came after the images


def test_images_that_are_there_take_their_verdicts_alone(machines: Machines) -> None:
    machines.build()
    before = machines.bench.engine.stored
    machines.another()
    machines.bench.engine.stored = before
    assert machines.actions() == ["nothing", "nothing"]
    assert not machines.bench.tested


def test_a_failure_found_here_counts_more_than_a_verdict_of_the_cache(machines: Machines) -> None:
    machines.build()
    bench = machines.bench
    image_id = next(image.id for image in bench.engine.stored.values() if image.tags)
    path = bench.workshop.store.folder / f"{image_id.removeprefix('sha256:')}.json"
    path.write_text(path.read_text().replace('"verdict": "passed"', '"verdict": "failed"'))
    assert "test" in machines.actions(write=False)
    assert bench.tested


def test_no_cache_is_read_or_written_unless_asked_for(machines: Machines) -> None:
    machines.build(write=False)
    machines.another()
    assert machines.actions(write=True, read=False) == ["build", "build"]
    machines.another()
    assert machines.actions(read=False) == ["build", "build"]


def test_the_plan_tells_what_would_come(machines: Machines) -> None:
    machines.build()
    machines.another()
    bench = machines.bench
    caches = open_caches([machines.place], [], bench.engine, machines.said.append)
    for item in foreseen(bench.workshop.plan(bench.images, test=True), caches):
        assert item.reason == f"never built here; would be taken from the cache {machines.place}"
    assert not bench.engine.stored


def test_wheels_come_for_what_must_be_built(machines: Machines, tmp_path: Path) -> None:
    bench = machines.bench
    (item, _) = bench.workshop.plan(bench.images, test=True)
    key = wheel_key_of(item, bench.workshop)
    wheel_store(bench.workshop).adopt(key, make_wheel(tmp_path / "wheel"))
    bench.faulty = {OLD, NEW}
    machines.build()
    assert WHEEL in machines.said[0]
    machines.another()
    machines.build()
    place = wheel_store(bench.workshop).find(key)
    assert place
    assert [path.name for path in place.iterdir()] == [WHEEL]


@pytest.mark.parametrize("when", ["reading", "writing"])
def test_a_registry_that_is_down_is_told_once(bench: Bench, tmp_path: Path, when: str) -> None:
    machines = Machines(bench, tmp_path, RegistryPlace(REF))
    bench.engine.offline = True
    outcomes = machines.build(read=when == "reading")
    assert all(outcome.ok for outcome in outcomes.values())
    assert len(machines.said) == 1
    assert machines.said[0].startswith(f"The cache {REF} cannot be ")


def test_a_folder_that_cannot_be_written_is_told_once(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machines = Machines(bench, tmp_path, FolderPlace(tmp_path / "kept"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "kept")

    monkeypatch.setattr("imgbuild.caches.folder.BlobStore.add", full)
    assert all(outcome.ok for outcome in machines.build().values())
    (said,) = machines.said
    assert "cannot be written; going on without it. No space left on device (kept)." in said


def test_a_failed_build_stays_failed_and_the_rest_is_kept(machines: Machines) -> None:
    machines.bench.broken = {NEW}
    outcomes = machines.build()
    assert not outcomes[NEW].ok
    machines.another()
    assert machines.build()[OLD].item.action is Action.NAME


def test_an_interrupt_before_the_name_loses_nothing(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(bench, tmp_path, RegistryPlace(REF))
    machines.build()
    machines.another()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("imgbuild.build.gates.pass_gate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            machines.build()
    assert all(name.startswith(f"{REF}:input-") for name in bench.names())
    assert len(bench.names()) == 2
    assert machines.actions() == ["name", "name"]
    assert bench.names() == _tags(bench)
    assert not bench.baked


def _tags(bench: Bench) -> set[str]:
    return {tag for image in bench.images for tag in image.tags}
