"""Images built by other builders than the engine's own, on engines of both image stores."""

import signal
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.network_namespace import forwarded
from support.own_registry import own_registry
from support.remote_builder import RemoteBuilder, remote_builder
from support.small_project import BUILD, ONE, SmallProject
from support.waiting import processes, wait_for


@pytest.fixture(scope="module")
def builders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RemoteBuilder]]:
    config = tmp_path_factory.mktemp("buildx")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("BUILDX_CONFIG", str(config))
        yield [stack.enter_context(remote_builder(name, config)) for name in ("farm-1", "farm-2")]


def _built_by(project: SmallProject, *options: str, code: int = 0) -> dict[str, str | None]:
    results = project.json(*BUILD, *options, code=code, timeout=600)
    return {one["image"]: one["builder"] for one in results}


@pytest.mark.parametrize(
    "project", ["main", pytest.param("other", marks=pytest.mark.nightly)], indirect=True
)
def test_a_builder_builds_what_the_engine_tests(
    project: SmallProject, builders: list[RemoteBuilder]
) -> None:
    first, _ = builders
    doctor = project.json("doctor", "--builder", first.name, *BUILD[1:5], code=None)
    (found,) = [one for one in doctor["findings"] if one["what"] == f"builder {first.name}"]
    assert "network bridge" in found["detail"]  # which these builders lack, and no step here needs
    made = _built_by(project, "--builder", first.name)
    assert {*made.values()} == {first.name}
    assert project.check_names() == 2 * len(made)
    assert any("# middle" in step for step in first.steps())
    assert project.left() == []
    assert "Nothing to do" in project.run(*BUILD, "--builder", first.name).stdout
    # The inputs are the same: the engine's own builder has nothing to do either.
    assert "Nothing to do" in project.run(*BUILD).stdout
    words = ("clean", "--builder", first.name, "--only", "build-cache")
    assert first.name in [one["name"] for one in project.json(*words)]
    project.run(*words, "--yes")
    assert not any("# middle" in step for step in first.steps())


@pytest.mark.parametrize(
    "project", ["main", pytest.param("other", marks=pytest.mark.nightly)], indirect=True
)
def test_extending_and_building_again_by_a_builder(
    project: SmallProject, builders: list[RemoteBuilder]
) -> None:
    name = ("--builder", builders[0].name)
    project.run(*ONE, *name)
    (project.root / "more").write_text("more\n", encoding="utf-8")
    small = ("extend", "--tf", "1.10", "-t", "imgbuild-e2e-small/more:1", *name)
    project.run(*small, "--copy", "more:/opt/more")
    assert project.printed("run", "--rm", "imgbuild-e2e-small/more:1", "cat", "/opt/more") == "more"
    project.printed("rmi", "imgbuild-e2e-small/more:1")
    (again,) = project.json("verify", "--rebuild", "--tf", "1.10", *name, code=1, timeout=300)
    assert again["lacking"] == []
    base, _, random, _ = again["layers"]
    assert (base["same"], random["same"]) == (True, False)
    assert project.left() == []


def test_a_builder_that_dies_loses_no_image(
    project: SmallProject, builders: list[RemoteBuilder]
) -> None:
    """Each of two builds a part; one is killed in a step, and its part goes to the other."""
    second = builders[1]
    names = [word for one in builders for word in ("--builder", one.name)]
    project.pause("middle", 20.5)
    process = project.start(*BUILD, "--json", *names)
    wait_for(lambda: _at_work(2), 120)
    project.pause("middle", 0)
    second.dockerd.stop(signal.SIGKILL)
    _, said = process.communicate(timeout=300)
    second.dockerd.start()
    assert process.returncode == 0, said
    assert f"The builder {second.name} no longer answers" in said
    assert project.check_names() == 4
    assert project.left() == []


def test_an_interrupt_ends_the_steps_of_all_builders(
    project: SmallProject, builders: list[RemoteBuilder]
) -> None:
    names = [word for one in builders for word in ("--builder", one.name)]
    project.pause("middle", 300.5)
    process = project.start(*BUILD, *names)
    wait_for(lambda: _at_work(2), 120)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    wait_for(lambda: _at_work(0), 30)
    assert project.named() == {}
    assert project.left() == []


def _at_work(count: int) -> bool:
    """Return whether the step that images share waits so many times: once a builder."""
    return len(processes("0.5 # middle")) == count  # other tests pause whole seconds


def test_a_builder_that_starts_empty_takes_the_steps_that_another_kept(
    project: SmallProject, builders: list[RemoteBuilder], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        registry = stack.enter_context(own_registry(tmp_path / "registry"))
        for one in builders:
            stack.enter_context(forwarded(registry.port, one.dockerd.pid))
        kept = ("--buildkit-cache", f"{registry.host}/ml/cache")
        for builder in builders:
            project.forget()
            project.forget_logs()
            by = _built_by(project, "--builder", builder.name, *kept)
            assert {*by.values()} == {builder.name}
            assert project.check_names() == 4
            ran = "# middle (started)" in project.log()
            assert ran == (builder is builders[0]), project.log()
        # Without the registry all is built all the same.
    project.forget()
    project.say(uuid.uuid4().hex)
    project.run(*BUILD, "--builder", builders[0].name, *kept)
    assert project.check_names() == 4
    assert "connection refused" in project.log()
