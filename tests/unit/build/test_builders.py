"""Builds by other builders than the engine's own: who builds what, and what outlives whom."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench import INPUTS, NEW, OLD, Bench

from imgbuild.engine.bake import BakeCancelledError, BakeTarget
from imgbuild.engine.discovery import Buildx
from imgbuild.engine.failure import FAULTS, BuildFailedError, BuildFailure, BuildStoppedError
from imgbuild.engine.progress import BakeBegun, BuildEvent
from imgbuild.inputs.build_inputs import BaseInput
from imgbuild.inputs.oci_layout import BaseLayout
from waiting import wait_for

UNREACHABLE = next(fault for fault in FAULTS if fault.kind == "unreachable")


class Farm:
    """Two builders; one that is ``dead`` breaks off, a ``slow`` one says nothing until its end."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench, self.dead, self.slow = bench, set[str](), set[str]()
        self.baked: list[tuple[str | None, tuple[str, ...]]] = []
        self.contexts: dict[str, str] = {}
        self.broken = set[str]()
        monkeypatch.setattr("imgbuild.build.bake_images.run_bake", self.bake)
        for module in ("bake_images", "builders"):
            monkeypatch.setattr(
                f"imgbuild.build.{module}.answers", lambda one, _: one.builder not in self.dead
            )
        monkeypatch.setattr("imgbuild.build.builders.WATCH_SECONDS", 0.05)
        monkeypatch.setattr(
            "imgbuild.engine.discovery.with_builder",
            lambda buildx, name, _: replace(buildx, builder=None if name == "default" else name),
        )
        self.use("a", "b")

    def use(self, *names: str) -> None:
        settings = self.bench.context.settings
        engine = settings.engine.model_copy(update={"builder": names})
        self.bench.change(settings=settings.model_copy(update={"engine": engine}))

    def bake(
        self, buildx: Buildx, host: object, targets: Sequence[BakeTarget], **more: Any
    ) -> Mapping[str, object]:
        names = tuple(one.name for one in targets if one.output == "type=docker")
        self.baked.append((buildx.builder, names))
        self.contexts |= {one.name: one.contexts["base"] for one in targets}
        if buildx.builder in self.slow:
            wait_for(more["stopped"])
            raise BakeCancelledError("cancelled")
        more["listener"](BakeBegun(names, buildx.builder))
        more["listener"](BuildEvent(names[0], "[os 1/2] RUN x", "running", number=1))
        error = BuildFailure(names, (), "", "connection refused", (), Path("log"), UNREACHABLE)
        if buildx.builder in self.dead:
            raise BuildStoppedError(error)
        if buildx.builder in self.broken:
            raise BuildFailedError(replace(error, step="[x] RUN", error="exit code: 1", fault=None))
        return self.bench.bake(buildx, host, targets, **more)

    def parts(self) -> dict[str | None, list[str]]:
        found: dict[str | None, list[str]] = {}
        for builder, names in self.baked:
            found.setdefault(builder, []).extend(names)
        return found


@pytest.fixture
def farm(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Farm:
    return Farm(bench, monkeypatch)


def test_several_builders_divide_the_images_and_each_result_names_its_own(farm: Farm) -> None:
    results = farm.bench.build()
    assert {one.state for one in results} == {"done"}
    parts = farm.parts()
    assert {*parts} == {"a", "b"}
    assert sorted(name for part in parts.values() for name in part) == [OLD, NEW]
    assert {one.name: one.builder for one in results} == {
        name: builder for builder, part in parts.items() for name in part
    }
    assert all(one.as_json()["builder"] == one.builder for one in results)


def test_a_builder_without_a_part_builds_nothing(farm: Farm) -> None:
    farm.use("a", "b", "c")
    assert [one.state for one in farm.bench.build()] == ["done", "done"]
    assert len(farm.baked) == 2


def test_the_engines_own_builder_has_no_name_in_results(farm: Farm) -> None:
    farm.use()
    assert [one.builder for one in farm.bench.build()] == [None, None]
    assert [builder for builder, _ in farm.baked] == [None]


def test_what_a_lost_builder_has_not_built_the_others_build(farm: Farm) -> None:
    farm.dead = {"b"}
    results = farm.bench.build()
    assert [one.state for one in results] == ["done", "done"]
    assert {one.builder for one in results} == {"a"}
    (said,) = (one for one in farm.bench.said if "no longer answers" in one)
    (lost,) = (part for builder, part in farm.baked if builder == "b")
    assert "builder b " in said
    assert all(name in said for name in lost)
    assert farm.bench.tags() == farm.bench.tags(OLD) | farm.bench.tags(NEW)


def test_a_builder_that_falls_silent_is_lost(farm: Farm) -> None:
    """As a machine without power: its bake neither ends nor says anything."""
    farm.dead, farm.slow = {"b"}, {"b"}
    results = farm.bench.build()
    assert {one.builder for one in results} == {"a"}
    assert [one for one in farm.bench.said if "builder b no longer answers" in one]
    farm.use("b")
    farm.bench.change(inputs=replace(INPUTS, uv_version="99"))
    (*_, result) = farm.bench.build(keep_going=True)
    assert "builder b no longer answers" in str(result.error)


def test_without_any_builder_left_each_image_says_which_was_lost(farm: Farm) -> None:
    farm.dead = {"a", "b"}
    build = farm.bench.run(keep_going=True)
    assert [one.state for one in build.results] == ["failed", "failed"]
    assert len(farm.baked) == 2  # nobody tried twice
    failure = build.failure()
    assert failure is not None
    assert getattr(failure, "exit_code", None) == 3
    for one in build.results:
        (builder,) = (who for who, part in farm.baked if one.name in part)
        assert f"builder {builder} " in str(one.error)
    assert not farm.bench.tags()


def test_a_failure_is_no_lost_builder_and_ends_the_other_builders_work(farm: Farm) -> None:
    """Unless the build keeps going: then the other builds its part to the end."""
    farm.broken, farm.slow = {"a"}, {"b"}
    results = farm.bench.build(keep_going=False)
    assert sorted(one.state for one in results) == ["failed", "failed"]
    assert len(farm.baked) == 2
    assert not farm.bench.said
    farm.slow.clear()
    results = farm.bench.build(keep_going=True)
    assert sorted(one.state for one in results) == ["done", "failed"]


def test_steps_of_two_builders_are_told_apart(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[object] = []
    monkeypatch.setattr(
        "imgbuild.build.display.BuildDisplay.on_event", lambda _, e: events.append(e)
    )
    farm.bench.build()
    steps = [one for one in events if isinstance(one, BuildEvent)]
    assert len(steps) == len({one.number for one in steps}) == 2
    begun = [one for one in events if isinstance(one, BakeBegun)]
    assert {one.builder for one in begun} == {"a", "b"}


@pytest.mark.parametrize("names", [("a",), ("a", "default")])
def test_another_builder_gets_a_base_that_only_this_machine_has_as_files(
    farm: Farm, tmp_path: Path, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine gets it if its own builder works, too; a damaged one is made again before."""
    checked, loaded = list[str](), list[str]()
    layout = BaseLayout(tmp_path / "base", "sha256:1", "imgbuild/base:x")
    base = BaseInput(
        "imgbuild/base:x", "sha256:1", "bootstrapped", layout, lambda: checked.append("")
    )
    farm.bench.change(inputs=replace(INPUTS, bases={"debian-12": base}))
    monkeypatch.setattr(
        "imgbuild.build.prepare.load_base", lambda name, _context: loaded.append(name)
    )
    farm.use(*names)
    farm.bench.build()
    parts = farm.parts()
    assert {farm.contexts[name] for name in parts["a"]} == {f"oci-layout://{layout.path}"}
    assert {farm.contexts[name] for name in parts.get(None, ())} <= {
        "docker-image://imgbuild/base:x"
    }
    assert (len(checked), loaded) == ((1, []) if len(names) == 1 else (0, ["debian-12"]))
