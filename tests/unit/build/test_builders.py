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
from imgbuild.errors import MachineError
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
            wait_for(lambda: {"a", "b"} <= {*self.parts()})
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
    """A builder without a part builds nothing; the engine's own has no name."""
    farm.use("a", "b", "c")
    results = farm.bench.build()
    assert {one.state for one in results} == {"done"}
    parts = farm.parts()
    assert len(parts) == len(farm.baked) == 2
    assert sorted(name for part in parts.values() for name in part) == [OLD, NEW]
    assert {one.name: one.as_json()["builder"] for one in results} == {
        name: builder for builder, part in parts.items() for name in part
    }
    farm.use()
    farm.bench.change(inputs=replace(INPUTS, uv_version="99"))
    assert [one.builder for one in farm.bench.build()] == [None, None]
    assert farm.baked[2][0] is None


def test_a_builder_that_falls_silent_is_lost(farm: Farm) -> None:
    """As a machine without power: its bake neither ends nor says anything."""
    farm.dead, farm.slow = {"b"}, {"b"}
    results = farm.bench.build()
    assert [(one.builder, one.state) for one in results] == [("a", "done")] * 2
    (said,) = (one for one in farm.bench.said if "builder b no longer answers" in one)
    (lost,) = (part for builder, part in farm.baked if builder == "b")
    assert all(name in said for name in lost)
    farm.use("b")
    farm.bench.change(inputs=replace(INPUTS, uv_version="99"))
    (*_, result) = farm.bench.build(keep_going=True)
    assert "builder b no longer answers" in str(result.error)


def test_without_any_builder_left_each_image_says_which_was_lost(farm: Farm) -> None:
    farm.dead = {"a", "b"}
    build = farm.bench.run(keep_going=True)
    assert [one.state for one in build.results] == ["failed", "failed"]
    assert len(farm.baked) == 2  # nobody tried twice
    assert isinstance(build.failure(), MachineError)
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


@pytest.mark.parametrize("names", [("a",), ("a", "default")])
def test_another_builder_gets_a_base_that_only_this_machine_has_as_files(
    farm: Farm, tmp_path: Path, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine gets it if its own builder works, too; a damaged one is made again before."""
    done = list[str]()
    layout = BaseLayout(tmp_path / "base", "sha256:1", "imgbuild/base:x")
    made = (layout.reference, layout.image_id, "bootstrapped", layout, lambda: done.append("check"))
    farm.bench.change(inputs=replace(INPUTS, bases={"debian-12": BaseInput(*made)}))
    monkeypatch.setattr("imgbuild.build.prepare.load_base", lambda *_: done.append("load"))
    farm.use(*names)
    farm.bench.build()
    taken = {builder: farm.contexts[one] for builder, (one, *_) in farm.baked}
    assert taken.pop("a") == f"oci-layout://{layout.path}"
    assert [*taken.values()] == [f"docker-image://{layout.reference}"] * (len(names) - 1)
    assert done == ["load" if taken else "check"]
