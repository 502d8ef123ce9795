"""What --mend does, and what it leaves alone."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import VERSION
from fake_programs import DEBIAN, OTHER, USER, FakePrograms

from imgbuild.doctor import engine_process, mend
from imgbuild.doctor.diagnosis import Diagnosis
from imgbuild.doctor.engine_state import EngineState
from imgbuild.doctor.finding import Finding, Status
from imgbuild.doctor.machine import Machine
from imgbuild.doctor.mend import Mended, Mender
from imgbuild.doctor.own_engine import OwnEngine
from imgbuild.doctor.shell import Shell
from imgbuild.engine.buildx import Buildx
from imgbuild.errors import MachineError
from imgbuild.settings import Settings

BUILDX = Buildx(Path("/usr/libexec/docker-buildx"), "0.29.1")
GOOD = EngineState("unix:///s", version=VERSION, buildx=BUILDX)
OWN = OwnEngine()


class Recorder:
    """Stands for everything that would change the machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        outer = self

        class Packages:
            def __init__(self, *_: object) -> None: ...

            def install(self, packages: tuple[str, ...]) -> None:
                outer.done.append(f"engine packages {' '.join(packages)}")

        def install(packages: tuple[str, ...], _shell: Shell) -> None:
            self.done.append(f"packages {' '.join(packages)}")

        monkeypatch.setattr(mend, "EnginePackages", Packages)
        monkeypatch.setattr(mend, "install_packages", install)
        process = engine_process
        monkeypatch.setattr(process, "refuse_beside_others", lambda _own: None)
        monkeypatch.setattr(process, "stop", lambda _own: self.done.append("stop"))
        monkeypatch.setattr(process, "start", lambda *_: self.done.append("start"))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def run(
    engine: EngineState, *findings: Finding, machine: Machine = DEBIAN, has: tuple[str, ...] = ()
) -> Mended:
    shell = Shell(FakePrograms(*has), lambda _line: None)
    return Mender(machine, shell, OWN).mend(Diagnosis(findings, engine, Settings()))


def lacking(*packages: str) -> Finding:
    return Finding(Status.MISSING, "base", "missing", packages=packages)


def test_nothing_to_mend(recorder: Recorder) -> None:
    assert run(GOOD, machine=OTHER) == Mended(anything=False)
    assert recorder.done == []


def test_exactly_the_missing_packages(recorder: Recorder) -> None:
    assert run(GOOD, lacking("mmdebstrap"), lacking("patchelf")) == Mended(anything=True)
    assert recorder.done == ["packages mmdebstrap patchelf"]


def test_an_engine_where_there_is_none(recorder: Recorder) -> None:
    assert run(EngineState(None)) == Mended(anything=True, host=OWN.host)
    assert recorder.done == ["engine packages docker.io docker-cli docker-buildx", "start"]


def test_an_installed_engine_is_only_started(recorder: Recorder) -> None:
    run(EngineState(OWN.host, buildx=BUILDX), has=("dockerd",))
    assert recorder.done == ["start"]


def test_an_engine_without_buildx_is_left_alone(recorder: Recorder) -> None:
    run(EngineState("unix:///s", version=VERSION))
    assert recorder.done == ["engine packages docker-buildx"]


def test_an_engine_without_features_is_left_alone(recorder: Recorder) -> None:
    assert run(replace(GOOD, features_problem="COPY --link", lacks_features=True)) == Mended(
        anything=False
    )
    assert recorder.done == []


def test_imgbuilds_own_engine_is_renewed_if_it_lacks_features(recorder: Recorder) -> None:
    own = replace(GOOD, host=OWN.host, features_problem="COPY --link", lacks_features=True)
    assert run(own) == Mended(anything=True, host=OWN.host)
    assert recorder.done == ["stop", "engine packages docker.io docker-cli docker-buildx", "start"]


def test_imgbuilds_own_engine_is_not_restarted_when_it_is_only_slow(recorder: Recorder) -> None:
    slow = replace(GOOD, host=OWN.host, features_problem="no answer within 30 s")
    assert run(slow) == Mended(anything=False)
    assert recorder.done == []


def test_an_address_the_user_named_is_not_replaced(recorder: Recorder) -> None:
    assert run(EngineState("tcp://build:2375", buildx=BUILDX)) == Mended(anything=False)
    assert recorder.done == []


def test_not_root(recorder: Recorder) -> None:
    with pytest.raises(MachineError, match=r"run `sudo .*imgbuild doctor --mend`"):
        run(EngineState(None), machine=USER)
    assert recorder.done == []


def test_not_debian(recorder: Recorder) -> None:
    with pytest.raises(MachineError, match="this is another system"):
        run(EngineState(None), machine=OTHER)
    assert recorder.done == []


def test_each_command_is_shown_before_it_runs() -> None:
    said: list[str] = []
    Shell(FakePrograms(), said.append).must(["apt-get", "install", "a b"], {"X": "y"})
    assert said == ["+ X=y apt-get install 'a b'"]
