"""Which engine, and which buildx."""

import hashlib
import json
from pathlib import Path

import fake_buildx
import pytest
from pydantic import ValidationError

from imgbuild.engine.discovery import Buildx, answers, find_buildx, resolve_host, with_builder
from imgbuild.errors import InputError, MachineError
from imgbuild.settings import EngineSettings

NOTHING = EngineSettings()
HOST = "unix:///run/one.sock"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return an environment with a Docker configuration that has the context ``lab``."""
    context(tmp_path, "lab", {"Endpoints": {"docker": {"Host": "tcp://lab.example:2375"}}})
    return {"DOCKER_CONFIG": str(tmp_path), "PATH": ""}


def context(config: Path, name: str, meta: object) -> str:
    folder = hashlib.sha256(name.encode()).hexdigest()
    path = config / "contexts" / "meta" / folder / "meta.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(meta))
    return folder


def choose(config: Path, name: str) -> None:
    (config / "config.json").write_text(json.dumps({"currentContext": name}))


def test_settings_then_host_then_context_then_the_default(
    environ: dict[str, str], tmp_path: Path
) -> None:
    assert resolve_host(NOTHING, environ) is None
    for name, expected in (("default", None), ("lab", "tcp://lab.example:2375")):
        choose(tmp_path, name)
        assert resolve_host(NOTHING, environ) == expected
    choose(tmp_path, "other")
    environ["DOCKER_CONTEXT"] = "lab"
    assert resolve_host(NOTHING, environ) == "tcp://lab.example:2375"
    environ["DOCKER_HOST"] = HOST
    assert resolve_host(NOTHING, environ) == HOST
    assert resolve_host(EngineSettings(host="tcp://own:1"), environ) == "tcp://own:1"


def test_an_engine_by_ssh_is_refused_with_what_to_do(
    environ: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"context: .* forward the engine's socket, `ssh -nNT -L"):
        resolve_host(NOTHING, {**environ, "DOCKER_HOST": "ssh://me@build"})
    context(tmp_path, "far", {"Endpoints": {"docker": {"Host": "ssh://me@build"}}})
    with pytest.raises(InputError, match="forward the engine's socket"):
        resolve_host(NOTHING, {**environ, "DOCKER_CONTEXT": "far"})
    for host in ("ssh://build", "ssh://me@build"):
        with pytest.raises(ValidationError, match="forward the engine's socket"):
            EngineSettings(host=host)


def test_a_context_with_tls_files_is_an_error(environ: dict[str, str], tmp_path: Path) -> None:
    folder = context(tmp_path, "safe", {"Endpoints": {"docker": {"Host": "tcp://x:2376"}}})
    (tmp_path / "contexts" / "tls" / folder).mkdir(parents=True)
    environ["DOCKER_CONTEXT"] = "safe"
    with pytest.raises(MachineError, match="DOCKER_CERT_PATH"):
        resolve_host(NOTHING, environ)


@pytest.mark.parametrize(
    "meta", [{}, {"Endpoints": {"docker": {"Host": ""}}}, [], {"Endpoints": 1}]
)
def test_a_broken_configuration_is_an_error(
    environ: dict[str, str], tmp_path: Path, meta: object
) -> None:
    context(tmp_path, "empty", meta)
    environ["DOCKER_CONTEXT"] = "empty"
    with pytest.raises(MachineError, match="does not name its engine"):
        resolve_host(NOTHING, environ)
    environ["DOCKER_CONTEXT"] = "gone"
    with pytest.raises(MachineError, match=r"'gone' is selected, and .* use default"):
        resolve_host(NOTHING, environ)
    del environ["DOCKER_CONTEXT"]
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(MachineError, match=r"config\.json cannot be read"):
        resolve_host(NOTHING, environ)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def install(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return fake_buildx.replaying(folder, fake_buildx.SAMPLES / "ok").path


def test_buildx_is_found_in_order(tmp_path: Path, environ: dict[str, str], home: Path) -> None:
    system = tmp_path / "system"
    environ["PATH"] = str(tmp_path / "bin")
    for folder in (
        tmp_path / "bin",
        system,
        home / ".docker" / "cli-plugins",
        tmp_path / "cli-plugins",
    ):
        path = install(folder)
        assert find_buildx(NOTHING, None, environ, (system,)).path == path
    own = install(tmp_path / "own")
    found = find_buildx(EngineSettings(buildx=str(own)), None, environ, (system,))
    assert (found.path, found.version) == (own, "0.99.0")


def test_a_buildx_that_cannot_be_used_is_the_machines_fault(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    with pytest.raises(MachineError, match="apt-get install docker-buildx"):
        find_buildx(NOTHING, None, environ, ())
    with pytest.raises(MachineError, match=r"engine\.buildx of the settings"):
        find_buildx(EngineSettings(buildx="/nowhere/docker-buildx"), None, environ, ())
    with pytest.raises(MachineError, match=r"settings\) is not buildx: it answers 'version'"):
        find_buildx(EngineSettings(buildx="/bin/echo"), None, environ, ())
    install(tmp_path / "cli-plugins").write_text("#!/bin/false\n")
    with pytest.raises(MachineError, match="does not run"):
        find_buildx(NOTHING, None, environ, ())


def test_the_command_line_then_the_settings_limit_steps(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    install(tmp_path / "system")
    cases = ((None, None, 3600), (None, 60, 60), (5, 60, 5), (0, 60, 0), (None, 0, 0))
    for given, setting, limit in cases:
        settings = EngineSettings.model_construct(step_timeout=setting)
        found = find_buildx(settings, given, environ, (tmp_path / "system",))
        assert found.step_seconds == limit


@pytest.mark.parametrize(
    ("said", "code", "runs"),
    [
        ("Name:   farm\nDriver: remote\n\nNodes:\nStatus:  running", 0, True),
        ("Name:   farm\nDriver: kubernetes\n\nNodes:\nStatus:  inactive", 0, False),
        ("Name:   farm\nDriver: remote\n\nNodes:\nError:   dial unix: no such file", 0, False),
    ],
)
def test_another_builder_is_asked_for_and_may_run(
    tmp_path: Path, said: str, code: int, runs: bool
) -> None:
    buildx = builders(tmp_path, said, code)
    own = with_builder(buildx, "default", None)
    assert own == buildx
    found = with_builder(buildx, "farm", "unix:///x.sock")
    assert (found.builder, answers(found, None)) == ("farm", runs)


@pytest.mark.parametrize(
    ("said", "code"),
    [('ERROR: no builder "farm" found', 1), ("Name:   farm\nDriver: docker\nStatus: running", 0)],
)
def test_a_builder_that_is_not_there_or_is_another_engine_is_refused(
    tmp_path: Path, said: str, code: int
) -> None:
    with pytest.raises(InputError, match="--builder farm") as caught:
        with_builder(builders(tmp_path, said, code), "farm", None)
    assert ("buildx ls" if code else "DOCKER_HOST") in str(caught.value)


def builders(folder: Path, said: str, code: int) -> Buildx:
    """Return a buildx that says this of every builder."""
    path = folder / "buildx"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return Buildx(path, "0")
