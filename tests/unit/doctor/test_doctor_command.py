"""The command: exit codes, what it prints, what it chooses and what it writes."""

import io
import json
from pathlib import Path

import certifi
import pytest
from rich.console import Console

from imgbuild.cli.doctor_command import doctor, show
from imgbuild.doctor import diagnosis
from imgbuild.doctor.checks import OWN_HOST, WRITE, Finding, Status
from imgbuild.doctor.diagnosis import HEADER, write_settings
from imgbuild.errors import InputError, MachineError
from imgbuild.settings import BootstrapBase, EngineSettings, PrefixInterpreter, load_settings

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


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Finding]:
    """Return what the checks find, by their names."""
    base = {"base": {"debian-12": BootstrapBase()}}
    found = {
        "check_engine": FINE,
        "check_base": Finding(Status.FINE, "base debian-12", "answers", choice=base),
        "check_ca": Finding(Status.WARNING, "CA", "private", WRITE, {"ca_bundle": str(CA)}),
    }
    others = dict.fromkeys(("check_index", "check_interpreter", "check_disk"), FINE)
    for name in {**found, **others}:
        monkeypatch.setattr(diagnosis, name, lambda *_, name=name: found.get(name, FINE))
    monkeypatch.setattr(diagnosis, "check_engine", lambda *_: [found["check_engine"]])
    return found


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "images").symlink_to(ROOT / "images")
    (tmp_path / "matrix.yaml").write_bytes((ROOT / "matrix.yaml").read_bytes())
    return tmp_path


@pytest.mark.usefixtures("machine")
def test_a_machine_that_can_build(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    doctor(project=checkout)
    output = capsys.readouterr().out
    assert "✓ engine" in output
    assert "private; imgbuild.local.yaml does not say so yet" in output
    assert not (checkout / "imgbuild.local.yaml").exists()


def test_a_stack_that_is_not_selected_is_one_short_line(
    machine: dict[str, Finding],
    checkout: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del machine["check_base"]
    monkeypatch.setattr(diagnosis, "check_base", lambda name, *_: Finding(Status.FINE, name, "-"))
    doctor(project=checkout, stack="debian")
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if "ubuntu" in line)
    assert line.split() == ["–", "stack", "ubuntu", "not", "checked"]  # noqa: RUF001
    assert any("debian-12" in line for line in lines)
    doctor(project=checkout)
    assert "stack" not in (out := capsys.readouterr().out)
    assert "ubuntu-16.04" in out
    with pytest.raises(InputError, match="No stack is called 'beos'; there are: ubuntu, debian"):
        doctor(project=checkout, stack="beos")


def test_a_machine_that_cannot(
    machine: dict[str, Finding], checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine["check_engine"] = MISSING
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
    machine: dict[str, Finding], checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = {"engine": EngineSettings(host=OWN_HOST)}
    python = {"cpython": {"3.6.15": PrefixInterpreter(source="prefix", path="/opt/p")}}
    machine["check_engine"] = Finding(Status.MISSING, "engine", "28.5", WRITE, engine)
    machine["check_interpreter"] = Finding(Status.MISSING, "CPython", "prefix", WRITE, python)
    doctor(project=checkout, write=True)
    path = checkout / "imgbuild.local.yaml"
    assert path.read_text().startswith(HEADER)
    written = load_settings(path)
    assert written.engine.host == OWN_HOST
    assert written.base == {"debian-12": BootstrapBase()}
    assert written.cpython == python["cpython"]
    assert written.ca_bundle == str(CA)
    assert f"{path}: written." in capsys.readouterr().err
    doctor(project=checkout, write=True)
    assert f"{path}: unchanged" in capsys.readouterr().err


def test_write_keeps_what_was_set_by_hand(machine: dict[str, Finding], checkout: Path) -> None:
    machine["check_base"] = FINE
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
    odd = Finding(Status.WARNING, "odd", "a\x1b[31m", "b\u202e")
    console = Console(file=stream, force_terminal=True, width=30, color_system=None)
    show([FINE, MISSING, odd], console)
    assert "✗ engine" in stream.getvalue()
    assert "  build/setup/engine.sh" in stream.getvalue()
    assert r"a\u001b[31m" in stream.getvalue()
    assert r"b\u202e" in stream.getvalue()
