"""The rows about the engine: each once where all is well and once where it is not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import VERSION

from imgbuild.doctor import engine_checks
from imgbuild.doctor.engine_checks import OWN_HOST, EngineState, check_engine, read_engine
from imgbuild.doctor.show import Status
from imgbuild.engine.discovery import Buildx, resolve_host
from imgbuild.engine.faults import DOCTOR
from imgbuild.engine.types import EngineVersion
from imgbuild.errors import MachineError
from imgbuild.project import Project
from imgbuild.settings import EngineSettings

ROOT = Project(Path(__file__).resolve().parents[3])
BUILDX = Buildx(Path("/usr/libexec/docker-buildx"), "0.29.1")
GOOD = EngineState("unix:///s", version=VERSION, buildx=BUILDX)
NONE = EngineState(None, problem="The socket does not exist.", buildx_problem="There is no buildx.")


def rows(state: EngineState, *, writing: bool = False) -> list[tuple[Status, str]]:
    return [(row.status, row.fix or "") for row in check_engine(state, ROOT, writing=writing)]


def test_an_engine_that_can_do_all() -> None:
    assert [status for status, _ in rows(GOOD)] == [Status.FINE] * 3
    assert GOOD.data_root == Path("/var/lib/docker")


def test_no_engine_names_the_script_that_sets_one_up(tmp_path: Path) -> None:
    engine, buildx, features = rows(NONE)
    assert engine[0] is buildx[0] is Status.MISSING
    assert engine[1].endswith("build/setup/engine.sh") == buildx[1].endswith("engine.sh") is True
    assert features[0] is Status.SKIPPED
    without_script = check_engine(NONE, Project(tmp_path), writing=False)[0]
    assert "buildx plugin" in (without_script.fix or "")


def test_a_fault_names_what_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://build:2375")
    assert "out of DOCKER_HOST" in rows(EngineState("tcp://build:2375"))[0][1]
    assert "out of imgbuild.local.yaml" in rows(EngineState("tcp://other:2375"))[0][1]
    assert rows(EngineState(OWN_HOST))[0][1].endswith("engine.sh")
    assert "usermod" in rows(EngineState(None, problem="Permission denied"))[0][1]
    status, fix = rows(replace(GOOD, features_problem="COPY --link"))[2]
    assert (status, "docker.io docker-buildx" in fix) == (Status.MISSING, True)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Return how to name the one address at which an engine answers."""
    addresses: list[str | None] = []

    class FakeDocker:
        def __init__(self, host: str | None) -> None:
            self.host = host

        def version(self) -> EngineVersion:
            if self.host not in addresses:
                raise MachineError("The engine cannot be used. " + DOCTOR)
            return VERSION

    monkeypatch.setattr(engine_checks, "Engine", FakeDocker)
    monkeypatch.setattr(engine_checks, "find_buildx", lambda _settings: BUILDX)
    monkeypatch.setattr(engine_checks, "broken_feature", lambda _buildx, _host: None)
    monkeypatch.setattr(engine_checks, "resolve_host", lambda found: resolve_host(found, {}))
    return addresses.append


def test_an_engine_is_read(
    answering: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering("unix:///s")
    assert read_engine(EngineSettings(host="unix:///s")) == GOOD
    lacking = "COPY --link: unknown flag: --link"
    monkeypatch.setattr(engine_checks, "broken_feature", lambda _buildx, _host: lacking)
    state = read_engine(EngineSettings(host="unix:///s"))
    assert state.features_problem.endswith("imgbuild uses fails: COPY --link: unknown flag: --link")


def test_a_named_engine_that_is_down_is_not_replaced(
    answering: Callable[[str | None], None],
) -> None:
    answering(OWN_HOST)
    state = read_engine(EngineSettings(host="unix:///down"))
    assert (state.host, state.version) == ("unix:///down", None)
    assert state.problem == "The engine cannot be used.", "without the advice to run the doctor"


def test_the_engine_of_the_script_is_recorded_where_none_is_named(
    answering: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_checks, "resolve_host", lambda _settings: None)
    answering(OWN_HOST)
    state = read_engine(EngineSettings())
    assert (state.host, state.unrecorded) == (OWN_HOST, True)
    assert rows(state)[0] == (Status.MISSING, "imgbuild doctor --write")
    assert rows(state, writing=True)[0] == (Status.FINE, "")
    answering(None)
    assert read_engine(EngineSettings()).host is None, "the default engine goes first"


def test_a_broken_context(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_settings: EngineSettings) -> str:
        raise MachineError("The context does not exist.")

    monkeypatch.setattr(engine_checks, "resolve_host", refuse)
    state = read_engine(EngineSettings())
    assert (state.version, state.problem) == (None, "The context does not exist.")
