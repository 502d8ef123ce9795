"""Which engine, and which buildx."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.settings import EngineSettings
from imgbuild.engine.discovery import Buildx, find_buildx, is_reachable, resolve_host, with_builder
from support import fake_buildx

NOTHING = EngineSettings()
HOST = "unix:///run/one.sock"


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the environment, with a Docker configuration that has the context ``lab``."""
    context(tmp_path, "lab", {"Endpoints": {"docker": {"Host": "tcp://lab.example:2375"}}})
    made = {"HOME": str(tmp_path / "home"), "DOCKER_CONFIG": str(tmp_path), "PATH": ""}
    monkeypatch.setattr("os.environ", made)
    monkeypatch.setattr("imgbuild.engine.discovery.PLUGIN_FOLDERS", (str(tmp_path / "system"),))
    return made


def context(config: Path, name: str, meta: object) -> str:
    folder = hashlib.sha256(name.encode()).hexdigest()
    path = config / "contexts" / "meta" / folder / "meta.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(meta))
    return folder


def test_settings_then_host_then_context_then_the_default(
    environ: dict[str, str], tmp_path: Path
) -> None:
    assert resolve_host(NOTHING) is None
    config = tmp_path / "config.json"
    for name, expected in (("default", None), ("lab", "tcp://lab.example:2375")):
        config.write_text(json.dumps({"currentContext": name}))
        assert resolve_host(NOTHING) == expected
    config.write_text('{"currentContext": "other"}')
    environ["DOCKER_CONTEXT"] = "lab"
    assert resolve_host(NOTHING) == "tcp://lab.example:2375"
    environ["DOCKER_HOST"] = HOST
    assert resolve_host(NOTHING) == HOST
    assert resolve_host(EngineSettings(host="tcp://own:1")) == "tcp://own:1"


def test_an_engine_by_ssh_is_refused_with_what_to_do(
    environ: dict[str, str], tmp_path: Path
) -> None:
    address = "ssh://me@build"
    context(tmp_path, "far", {"Endpoints": {"docker": {"Host": address}}})
    for variable, value in (("DOCKER_HOST", address), ("DOCKER_CONTEXT", "far")):
        environ[variable] = value
        with pytest.raises(InputError, match="forward the engine's socket, `ssh -nNT -L"):
            resolve_host(NOTHING)
        del environ[variable]
    with pytest.raises(ValidationError, match="forward the engine's socket"):
        EngineSettings(host=address)


def test_a_context_that_cannot_be_used_is_an_error(environ: dict[str, str], tmp_path: Path) -> None:
    docker = {"none": {}, "empty": {"docker": {"Host": ""}}, "odd": 1}
    for name, endpoints in docker.items():
        context(tmp_path, name, {"Endpoints": endpoints})
    context(tmp_path, "list", [])
    folder = context(tmp_path, "safe", {"Endpoints": {"docker": {"Host": "tcp://x:2376"}}})
    (tmp_path / "contexts" / "tls" / folder).mkdir(parents=True)
    nameless = {name: f"'{name}' is selected, .*Endpoints" for name in (*docker, "list", "gone")}
    for name, said in {**nameless, "safe": "DOCKER_CERT_PATH"}.items():
        environ["DOCKER_CONTEXT"] = name
        with pytest.raises(MachineError, match=said):
            resolve_host(NOTHING)
    del environ["DOCKER_CONTEXT"]
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(MachineError, match=r"config\.json cannot be read"):
        resolve_host(NOTHING)


def install(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return fake_buildx.replaying(folder, fake_buildx.SAMPLES / "ok").path


def test_buildx_is_found_in_order(tmp_path: Path, environ: dict[str, str]) -> None:
    system, path, own = tmp_path / "system", tmp_path / "bin", tmp_path / "own"
    environ["PATH"] = str(path)
    user = tmp_path / "home" / ".docker"
    for folder in (path, system, user / "cli-plugins", tmp_path / "cli-plugins"):
        program = install(folder)
        assert find_buildx(NOTHING, None).path == program
    settings = EngineSettings(buildx=str(install(own)))
    found = find_buildx(settings, None)
    assert (found.path.parent, found.version) == (own, "0.99.0")


@pytest.mark.usefixtures("environ")
@pytest.mark.parametrize(
    ("program", "said"),
    [
        (None, "apt-get install docker-buildx"),
        ("/nowhere/docker-buildx", r"\(engine\.buildx"),
        ("/bin/echo", "is not buildx: .*'version'"),
        ("/bin/false", "does not run"),
    ],
)
def test_a_buildx_that_cannot_be_used_is_the_machines_fault(program: str | None, said: str) -> None:
    with pytest.raises(MachineError, match=said):
        find_buildx(EngineSettings(buildx=program), None)


@pytest.mark.usefixtures("environ")
def test_the_command_line_then_the_settings_limit_steps(tmp_path: Path) -> None:
    install(tmp_path / "system")
    for given, setting, limit in ((None, "1m", 60), (5, "1m", 5), (0, "1m", 0), (None, "0", 0)):
        settings = EngineSettings.model_validate({"step_timeout": setting})
        found = find_buildx(settings, None, given)
        assert found.step_seconds == limit


def builders(folder: Path, said: str, code: int = 0) -> Buildx:
    """Return a buildx that says this of every builder."""
    path = folder / "buildx"
    path.write_text(f"#!/bin/sh\ncat <<'END'\nName: farm\n{said}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return Buildx(path, "0")


def test_another_builder_is_asked_for_and_may_run(tmp_path: Path) -> None:
    states = {"Status:  running": True, "Status:  inactive": False, "Error:   no such file": False}
    for said, runs in states.items():
        buildx = builders(tmp_path, f"Driver: remote\n\nNodes:\n{said}")
        assert with_builder(buildx, "default") == buildx
        found = with_builder(replace(buildx, host="unix:///x.sock"), "farm")
        assert (found.builder, is_reachable(found)) == ("farm", runs)


def test_the_platform_of_a_builder_is_its_machines(tmp_path: Path) -> None:
    """The first that it names; the others are emulated. One that never ran names none."""
    for said, platform in {
        "Platforms: linux/arm64, linux/amd64": "linux/arm64",
        "Platforms: linux/amd64*, linux/amd64/v2, linux/386": "linux/amd64",
        "Status: inactive": "linux/amd64",
    }.items():
        buildx = builders(tmp_path, f"Driver: remote\n\nNodes:\n{said}")
        assert with_builder(buildx, "farm").platform == platform


def test_a_builder_that_is_not_there_or_is_another_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--builder farm .*buildx ls"):
        with_builder(builders(tmp_path, "ERROR: no builder", code=1), "farm")
    with pytest.raises(InputError, match=r"--builder farm: .*DOCKER_HOST"):
        with_builder(builders(tmp_path, "Driver: docker\nStatus: running"), "farm")
