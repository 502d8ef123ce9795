"""The rows about the engine, and what decides whether a build can be done."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import VERSION
from fake_programs import DEBIAN, OTHER, USER

from imgbuild.doctor import engine_state
from imgbuild.doctor.diagnosis import Diagnosis
from imgbuild.doctor.engine_findings import check_engine, named_address
from imgbuild.doctor.engine_state import EngineState, read_engine
from imgbuild.doctor.finding import Finding, Status, fine
from imgbuild.doctor.own_engine import OwnEngine
from imgbuild.engine.buildx import Buildx
from imgbuild.engine.faults import DOCTOR
from imgbuild.engine.probe import MissingFeature
from imgbuild.errors import MachineError
from imgbuild.settings import EngineSettings, Settings

BUILDX = Buildx(Path("/usr/libexec/docker-buildx"), "0.29.1")
OWN = OwnEngine()
GOOD = EngineState("unix:///s", version=VERSION, buildx=BUILDX)
NONE = EngineState(None, problem="There is no such socket.", buildx_problem="There is no buildx.")


def statuses(state: EngineState) -> list[Status]:
    return [row.status for row in check_engine(state, DEBIAN, OWN)]


def test_an_engine_that_can_do_all() -> None:
    assert statuses(GOOD) == [Status.FINE] * 3
    assert GOOD.data_root == Path("/var/lib/docker")


def test_no_engine() -> None:
    rows = check_engine(NONE, USER, OWN)
    assert [row.status for row in rows] == [Status.MISSING, Status.MISSING, Status.SKIPPED]
    assert (rows[0].mend or "").startswith("sudo ")
    assert (rows[0].mend or "").endswith("doctor --mend")
    assert "buildx plugin" in (check_engine(NONE, OTHER, OWN)[0].mend or "")


def test_an_engine_that_lacks_features_is_not_touched() -> None:
    old = EngineState("unix:///s", version=VERSION, buildx=BUILDX, features_problem="COPY --link")
    row = check_engine(old, DEBIAN, OWN)[2]
    assert row.status is Status.MISSING
    assert "apt-get install -y docker.io docker-buildx" in (row.mend or "")
    assert row.packages == ()
    row = check_engine(replace(old, host=OWN.host), DEBIAN, OWN)[2]
    assert (row.mend or "").endswith("doctor --mend"), "imgbuild's own may be renewed"


def test_a_socket_that_this_user_may_not_open() -> None:
    state = EngineState(None, problem="Permission denied")
    assert "usermod" in (check_engine(state, USER, OWN)[0].mend or "")


def test_an_address_that_the_user_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://build:2375")
    assert named_address(EngineState("tcp://build:2375"), OWN) == "DOCKER_HOST"
    assert named_address(EngineState("tcp://other:2375"), OWN) is not None
    assert named_address(EngineState(None, resolved=False), OWN) is not None
    assert named_address(EngineState(OWN.host), OWN) is None
    assert named_address(NONE, OWN) is None
    row = check_engine(EngineState("tcp://build:2375"), DEBIAN, OWN)[0]
    assert "take its address out of DOCKER_HOST" in (row.mend or "")


def test_only_what_is_missing_prevents_a_build() -> None:
    warning = Finding(Status.WARNING, "git", "missing", packages=("git",))
    lacking = Finding(Status.MISSING, "base", "missing", packages=("mmdebstrap", "git"))
    assert Diagnosis((fine("a", "b"), warning), GOOD, Settings()).able
    looked = Diagnosis((warning, lacking), GOOD, Settings())
    assert looked.missing == (lacking,)
    assert looked.packages == ("git", "mmdebstrap")


class FakeDocker:
    """An engine that answers, or does not."""

    def __init__(self, host: str | None) -> None:
        self.host = host

    def version(self) -> object:
        if self.host == "unix:///down":
            raise MachineError("The engine cannot be used. " + DOCTOR)
        return VERSION


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_state, "Engine", FakeDocker)
    monkeypatch.setattr(engine_state, "find_buildx", lambda _settings: BUILDX)
    monkeypatch.setattr(engine_state, "probe_build", lambda _buildx, _host: ())


@pytest.mark.usefixtures("docker")
def test_reading_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_engine(EngineSettings(host="unix:///s")) == GOOD
    lacking = (MissingFeature("COPY --link", "unknown flag: --link"),)
    monkeypatch.setattr(engine_state, "probe_build", lambda _buildx, _host: lacking)
    state = read_engine(EngineSettings(host="unix:///s"))
    assert state.lacks_features
    assert state.features_problem == "does not work: COPY --link (unknown flag: --link)"


@pytest.mark.usefixtures("docker")
def test_reading_an_engine_that_is_down() -> None:
    state = read_engine(EngineSettings(host="unix:///down"))
    assert not state.answers
    assert state.problem == "The engine cannot be used.", "not: ask the doctor"
    assert state.features_problem is None
    assert not engine_state.answers("unix:///down")
    assert engine_state.answers("unix:///s")


@pytest.mark.usefixtures("docker")
def test_a_broken_context(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_settings: EngineSettings) -> str:
        raise MachineError("The context does not exist.")

    monkeypatch.setattr(engine_state, "resolve_host", refuse)
    assert read_engine(EngineSettings()) == EngineState(
        None, resolved=False, problem="The context does not exist."
    )
