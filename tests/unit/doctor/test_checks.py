"""The findings on the engine, its disk and programs: once where all is well, once where not."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_engine import VERSION

from imgbuild.build.prepare import needed_bytes
from imgbuild.doctor import checks
from imgbuild.doctor.checks import (
    OWN_HOST,
    WRITE,
    Finding,
    Status,
    check_disk,
    check_engine,
    check_programs,
    install_command,
)
from imgbuild.engine.discovery import Buildx, resolve_host
from imgbuild.engine.faults import DOCTOR
from imgbuild.engine.types import EngineVersion
from imgbuild.errors import MachineError
from imgbuild.settings import EngineSettings

pytest_plugins = ("doctor_fixtures",)
ROOT = Path(__file__).resolve().parents[3]
BUILDX = Buildx(Path("/usr/libexec/docker-buildx"), "0.29.1")

Answers = dict[str | None, EngineVersion | MachineError]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Return what each address answers; the others have no engine."""
    made: Answers = {}

    class FakeDocker:
        def __init__(self, host: str | None) -> None:
            self.host = host

        def version(self) -> EngineVersion:
            answer = made.get(self.host, MachineError("The engine cannot be used. " + DOCTOR))
            if isinstance(answer, MachineError):
                raise answer
            return answer

    monkeypatch.setattr(checks, "Engine", FakeDocker)
    monkeypatch.setattr(checks, "find_buildx", lambda _settings: BUILDX)
    monkeypatch.setattr(checks, "broken_feature", lambda _buildx, _host: None)
    monkeypatch.setattr(checks, "resolve_host", lambda found: resolve_host(found, {}))
    return made


def found(host: str | None = None, root: Path = ROOT) -> list[Finding]:
    return [*check_engine(EngineSettings(host=host), root)]


def test_an_engine_that_can_do_all(answers: Answers) -> None:
    answers["unix:///s"] = VERSION
    rows = found("unix:///s")
    assert [row.status for row in rows[:3]] == [Status.FINE] * 3
    assert rows[3].what == "disk, engine"
    assert "/var/lib/docker" in rows[3].detail


def test_no_engine_names_the_script_that_sets_one_up(
    answers: Answers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_settings: EngineSettings) -> Buildx:
        raise MachineError("There is no buildx.")

    monkeypatch.setattr(checks, "find_buildx", refuse)
    engine, buildx, features = found()
    assert engine.detail == "The engine cannot be used.", "without the advice to run the doctor"
    assert engine.status is buildx.status is Status.MISSING
    assert str(engine.fix) == str(buildx.fix)
    assert str(engine.fix).endswith("build/setup/engine.sh")
    assert features.status is Status.SKIPPED
    assert "buildx plugin" in str(found(root=tmp_path)[0].fix)
    answers[None] = MachineError("Permission denied")
    assert "usermod" in str(found()[0].fix)
    assert str(found(OWN_HOST)[0].fix).endswith("engine.sh")


def test_a_named_engine_that_is_down_is_not_replaced(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers[OWN_HOST] = VERSION
    assert "out of imgbuild.local.yaml" in str(found("tcp://build:2375")[0].fix)
    monkeypatch.setenv("DOCKER_HOST", "tcp://build:2375")
    assert "out of DOCKER_HOST" in str(found("tcp://build:2375")[0].fix)


def test_the_engine_of_the_script_is_recorded_where_none_is_named(answers: Answers) -> None:
    answers[OWN_HOST] = VERSION
    engine = found()[0]
    assert (engine.status, engine.fix) == (Status.MISSING, WRITE)
    assert engine.choice == {"engine": EngineSettings(host=OWN_HOST)}
    answers[None] = VERSION
    assert found()[0].choice == {}, "the default engine goes first"


def test_a_feature_that_fails_and_a_context_that_is_broken(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers["unix:///s"] = VERSION
    monkeypatch.setattr(checks, "broken_feature", lambda *_: "COPY --link: unknown flag: --link")
    features = found("unix:///s")[2]
    assert features.status is Status.MISSING
    assert features.detail.endswith("imgbuild uses fails: COPY --link: unknown flag: --link")
    assert "docker.io docker-buildx" in str(features.fix)

    def refuse(_settings: EngineSettings) -> str:
        raise MachineError("The context does not exist.")

    monkeypatch.setattr(checks, "resolve_host", refuse)
    assert found()[0].detail == "The context does not exist."


@pytest.mark.parametrize(
    ("free", "status"), [(50, Status.FINE), (9, Status.WARNING), (2, Status.MISSING)]
)
def test_disk(monkeypatch: pytest.MonkeyPatch, free: int, status: Status) -> None:
    usage = shutil._ntuple_diskusage(100 * 10**9, 0, free * 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert check_disk("disk", Path("/data"), "prune").status is status


def test_the_engine_needs_as_much_disk_as_a_build_requires(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers["unix:///s"] = VERSION
    for free, status in ((needed_bytes() - 1, Status.MISSING), (needed_bytes(), Status.WARNING)):
        usage = shutil._ntuple_diskusage(0, 0, free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        disk = found("unix:///s")[3]
        assert (disk.what, disk.status) == ("disk, engine", status)


def test_programs(program: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    client, git = check_programs()
    assert install_command("git") == "install git with this system's package manager"
    program("apt-get")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert install_command("git") == "sudo apt-get install -y git"
    assert "--no-test" in client.detail
    assert git.status is client.status is Status.WARNING
    program("git")
    program("docker")
    assert [row.status for row in check_programs()] == [Status.FINE] * 2
