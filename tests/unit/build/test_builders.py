"""Builds by other builders than the engine's own: who builds what, and what outlives whom."""

from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from imgbuild.build.targets import image_target
from imgbuild.core.errors import MachineError
from imgbuild.engine.build import BuildTarget
from imgbuild.engine.discovery import Buildx
from imgbuild.engine.failure import FAULTS, BuildFailedError
from imgbuild.inputs.base import BOOTSTRAPPED, Base
from support.bench import INPUTS, Bench
from support.waiting import wait_for

UNREACHABLE = next(fault for fault in FAULTS if fault.kind == "unreachable")


class Farm:
    """Two builders; one that is ``dead`` breaks off. ``slow`` ones wait until they are stopped."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench, self.dead, self.slow = bench, set[str](), set[str]()
        self.built: list[tuple[str | None, str]] = []
        self.contexts: dict[str, str] = {}
        self.broken = set[str]()
        monkeypatch.setattr("imgbuild.build.image_build.build_image", self.make)
        monkeypatch.setattr(
            "imgbuild.build.workers.is_reachable", lambda buildx: buildx.builder not in self.dead
        )
        monkeypatch.setattr(
            "imgbuild.engine.discovery.with_builder",
            lambda buildx, name: replace(buildx, builder=None if name == "default" else name),
        )
        self.use("a", "b")

    def use(self, *names: str) -> None:
        settings = self.bench.context.settings
        engine = settings.engine.model_copy(update={"builder": names})
        self.bench.change(settings=settings.model_copy(update={"engine": engine}))

    def make(self, buildx: Buildx, target: BuildTarget, **more: Any) -> tuple[str, float]:
        self.built.append((buildx.builder, target.name))
        self.contexts[target.name] = target.contexts["base"]
        if buildx.builder in self.slow:
            wait_for(more["stopped"])
            raise CancelledError
        fail = partial(BuildFailedError, target.name, step="", tail=(), log=Path("log"))
        if buildx.builder in self.dead:
            raise fail(cause="connection refused", fault=UNREACHABLE)
        if buildx.builder in self.broken:
            wait_for(lambda: {"a", "b"} <= {builder for builder, _ in self.built})
            raise fail(cause="exit code: 1")
        if len(self.bench.context.settings.engine.builders) > 1:
            wait_for(lambda: len({name for _, name in self.built}) > 1)  # each has one to build
        return self.bench.make_image(buildx, target, **more)


@pytest.fixture
def farm(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Farm:
    return Farm(bench, monkeypatch)


def test_results_name_the_builder_of_each_image(farm: Farm) -> None:
    """A builder for which no image is left builds nothing; the engine's own has no name."""
    farm.use("a", "b", "c")
    results = farm.bench.build()
    assert {result.state for result in results} == {"done"}
    assert len({builder for builder, _ in farm.built}) == len(farm.built) == 2
    assert {result.name: result.as_json()["builder"] for result in results} == {
        name: builder for builder, name in farm.built
    }
    farm.use()
    farm.bench.change(inputs=replace(INPUTS, uv_version="99"))
    assert [result.builder for result in farm.bench.build()] == [None, None]
    assert farm.built[2][0] is None


def test_what_a_lost_builder_has_begun_goes_to_the_others(farm: Farm) -> None:
    farm.dead = {"b"}
    results = farm.bench.build()
    assert [(result.builder, result.state) for result in results] == [("a", "done")] * 2
    (said,) = (text for text in farm.bench.said if "builder b no longer answers" in text)
    assert "connection refused" in said
    assert [builder for builder, _ in farm.built].count("b") == 1


def test_images_name_the_builders_that_were_lost(farm: Farm) -> None:
    farm.dead = {"a", "b"}
    build = farm.bench.run(keep_going=True)
    assert [result.state for result in build.results] == ["failed", "failed"]
    assert len(farm.built) == 2  # nobody tried twice
    failure = build.failure()
    assert isinstance(failure, MachineError)
    for builder in ("a", "b"):
        assert f"The builder {builder} no longer answers" in str(failure)
    assert not farm.bench.tags()


def test_failed_build_cancels_the_other_builders(farm: Farm) -> None:
    """Unless the build keeps going: then the other goes on."""
    farm.broken, farm.slow = {"a"}, {"b"}
    results = farm.bench.build(keep_going=False)
    assert sorted(result.state for result in results) == ["cancelled", "failed"]
    assert len(farm.built) == 2
    assert not farm.bench.said
    farm.slow.clear()
    results = farm.bench.build(keep_going=True)
    assert sorted(result.state for result in results) == ["done", "failed"]


@pytest.mark.parametrize("names", [("a",), ("a", "default")])
def test_other_builder_gets_a_local_base_as_files(
    farm: Farm, tmp_path: Path, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine gets it if its own builder works, too; all of it is read before."""
    done = list[str]()
    base = Base("imgbuild/base:x", "sha256:1", BOOTSTRAPPED, tmp_path / "base")
    farm.bench.change(inputs=replace(INPUTS, bases={"debian-12": base}))
    monkeypatch.setattr("imgbuild.build.prepare.provide_base", lambda *_: done.append("load"))
    monkeypatch.setattr("imgbuild.build.prepare.require_whole", lambda _: done.append("check"))
    farm.use(*names)
    farm.bench.build()
    taken = {builder: farm.contexts[name] for builder, name in farm.built}
    assert taken.pop("a") == f"oci-layout://{base.layout}"
    assert [*taken.values()] == [f"docker-image://{base.reference}"] * (len(names) - 1)
    assert done == ["load" if taken else "check"]


def test_the_platform_of_a_builder_decides_which_base_compiles(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []

    def target(*inputs: Any, machine: str, **more: Any) -> BuildTarget:
        told.append(machine)
        return image_target(*inputs, machine=machine, **more)

    monkeypatch.setattr("imgbuild.build.image_build.image_target", target)
    bench.build()
    assert {*told} == {"linux/amd64"}
