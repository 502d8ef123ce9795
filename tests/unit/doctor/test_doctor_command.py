"""The command: exit codes, what it prints, what it chooses and what it writes."""

import io
import json
from pathlib import Path

import certifi
import pytest
from rich.console import Console

from imgbuild.cli.doctor_command import doctor
from imgbuild.doctor import checks
from imgbuild.doctor.checks import HEADER, write_settings
from imgbuild.doctor.engine_checks import OWN_HOST, EngineState
from imgbuild.doctor.input_checks import CaState, InterpreterState
from imgbuild.doctor.show import Finding, Status, show
from imgbuild.errors import MachineError
from imgbuild.settings import BootstrapBase, PrefixInterpreter, load_settings

ROOT = Path(__file__).resolve().parents[3]
CA = Path(certifi.where())
FINE = Finding(Status.FINE, "engine", "28.5")
MISSING = Finding(Status.MISSING, "engine", "none answers", "build/setup/engine.sh")
DIGEST = "example/base@sha256:" + "0" * 64
HAND_MADE = f"""\
# mine
engine: {{host: "tcp://build:2375"}}
base: {{debian-12: {{from: registry, image: "{DIGEST}"}}}}
cpython: {{3.6.2: {{from: prefix, path: /opt/other}}}}
"""


class Machine:
    """The machine that the checks look at."""

    def __init__(self) -> None:
        self.engine = EngineState(None)
        self.engine_row = FINE
        self.interpreter = InterpreterState("3.6.15", "https://x/")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    good = Finding(Status.FINE, "other", "is there")
    monkeypatch.setattr(checks, "read_engine", lambda _settings: made.engine)
    monkeypatch.setattr(checks, "check_engine", lambda *_, **__: [made.engine_row])
    monkeypatch.setattr(checks, "read_interpreter", lambda *_: made.interpreter)
    monkeypatch.setattr(checks, "read_ca_state", lambda: CaState(CA, private=1))
    for name in ("check_index", "check_bootstrap", "check_registry", "check_ca", "check_disk"):
        monkeypatch.setattr(checks, name, lambda *_: good)
    return made


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "matrix.yaml").write_bytes((ROOT / "matrix.yaml").read_bytes())
    return tmp_path


@pytest.mark.usefixtures("machine")
def test_a_machine_that_can_build(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    doctor(project=checkout)
    assert "✓ engine" in capsys.readouterr().out
    assert not (checkout / "imgbuild.local.yaml").exists()


def test_a_machine_that_cannot(
    machine: Machine, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.engine_row = MISSING
    with pytest.raises(MachineError, match="cannot build yet: engine") as caught:
        doctor(project=checkout)
    assert caught.value.exit_code == 3
    assert "-> build/setup/engine.sh" in capsys.readouterr().out
    with pytest.raises(MachineError):
        doctor(project=checkout, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["able"] is False
    assert found["findings"][0] == {
        "status": "missing",
        "what": "engine",
        "detail": "none answers",
        "mend": "build/setup/engine.sh",
    }
    assert found["choice"]["base"] == {"debian-12": {"from": "bootstrap"}}


def test_write_records_every_choice(
    machine: Machine, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.engine = EngineState(OWN_HOST, unrecorded=True)
    machine.interpreter = InterpreterState("3.6.15", "https://x/", "no route", (Path("/opt/p"),))
    doctor(project=checkout, write=True)
    path = checkout / "imgbuild.local.yaml"
    assert path.read_text().startswith(HEADER)
    written = load_settings(path)
    assert written.engine.host == OWN_HOST
    assert written.base == {"debian-12": BootstrapBase()}
    assert written.cpython == {"3.6.15": PrefixInterpreter(source="prefix", path="/opt/p")}
    assert written.ca_bundle == str(CA)
    assert f"{path}: written." in capsys.readouterr().err
    doctor(project=checkout, write=True)
    assert f"{path}: unchanged" in capsys.readouterr().err


@pytest.mark.usefixtures("machine")
def test_write_keeps_what_was_set_by_hand(checkout: Path) -> None:
    path = checkout / "imgbuild.local.yaml"
    path.write_text(HAND_MADE)
    before = load_settings(path)
    doctor(project=checkout, write=True)
    after = load_settings(path)
    assert (after.engine, after.base) == (before.engine, before.base)
    assert after.cpython["3.6.2"] == before.cpython["3.6.2"]
    path.write_text(HAND_MADE)
    assert not write_settings(before, path)
    assert path.read_text() == HAND_MADE, "a file that says the same keeps its comments"


def test_a_terminal_gets_a_table_and_whole_fixes() -> None:
    stream = io.StringIO()
    show([FINE, MISSING], Console(file=stream, force_terminal=True, width=30, color_system=None))
    assert "✗ engine" in stream.getvalue()
    assert "  build/setup/engine.sh" in stream.getvalue()
