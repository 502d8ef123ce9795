"""The command: exit codes, what it prints and what it writes."""

import json
from pathlib import Path

import pytest

from imgbuild.cli.doctor import doctor
from imgbuild.doctor import diagnosis, engine_process, mend
from imgbuild.doctor.diagnosis import Diagnosis
from imgbuild.doctor.engine_state import EngineState
from imgbuild.doctor.finding import Finding, Status, fine
from imgbuild.doctor.mend import Mended
from imgbuild.errors import InputError, MachineError
from imgbuild.settings import BootstrapBase, Settings, load_settings

MISSING = Finding(Status.MISSING, "engine", "none answers", "imgbuild doctor --mend")
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "matrix.yaml").write_bytes((ROOT / "matrix.yaml").read_bytes())
    return tmp_path


class Machine:
    """Stands for the diagnosis: what it finds, and the settings it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.findings: tuple[Finding, ...] = (fine("engine", "28.5"),)
        self.seen: list[Settings] = []
        monkeypatch.setattr(diagnosis.Doctor, "diagnose", self._diagnose)

    def _diagnose(self, settings: Settings, *, writing: bool) -> Diagnosis:
        self.seen.append(settings)
        base = {"debian-12": BootstrapBase()} if writing else {}
        choice = settings.model_copy(update={"base": base})
        return Diagnosis(self.findings, EngineState(None), choice)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_a_machine_that_can_build(
    machine: Machine, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    doctor(project=checkout)
    assert machine.seen == [Settings()]
    assert capsys.readouterr().out == "✓ engine  28.5\n"
    assert not (checkout / "imgbuild.local.yaml").exists()


def test_a_machine_that_cannot(
    machine: Machine, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.findings = (MISSING,)
    with pytest.raises(MachineError, match="cannot build yet: engine") as caught:
        doctor(project=checkout)
    assert caught.value.exit_code == 3
    assert "-> imgbuild doctor --mend" in capsys.readouterr().out


def test_json(machine: Machine, checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine.findings = (MISSING,)
    with pytest.raises(MachineError):
        doctor(project=checkout, as_json=True, write=True)
    said = json.loads(capsys.readouterr().out)
    assert said["able"] is False
    assert said["findings"][0]["mend"] == "imgbuild doctor --mend"
    assert said["choice"]["base"] == {"debian-12": {"from": "bootstrap"}}


@pytest.mark.usefixtures("machine")
def test_write(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    doctor(project=checkout, write=True)
    path = checkout / "imgbuild.local.yaml"
    assert f"{path}: written." in capsys.readouterr().err
    assert load_settings(path).base == {"debian-12": BootstrapBase()}
    doctor(project=checkout, write=True)
    assert f"{path}: unchanged" in capsys.readouterr().err


def test_mend_records_the_engine_it_started(
    machine: Machine, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Mended(anything=True, host="unix:///run/imgbuild/docker.sock")
    rounds = [done, Mended(anything=False)]
    monkeypatch.setattr(mend.Mender, "mend", lambda _self, _looked: rounds.pop(0))
    doctor(project=checkout, mend=True)
    assert [seen.engine.host for seen in machine.seen] == [None, done.host]
    assert load_settings(checkout / "imgbuild.local.yaml").engine.host == done.host


def test_stop(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(engine_process, "stop", lambda _own: True)
    doctor(stop=True)
    assert capsys.readouterr().out == "Stopped imgbuild's own engine.\n"
    with pytest.raises(InputError, match="stands alone"):
        doctor(stop=True, write=True)
