"""The choice of inputs, and the file it is written to."""

from pathlib import Path

import pytest
from fake_programs import DEBIAN, FakePrograms

from imgbuild.doctor.inputs import Inputs
from imgbuild.doctor.interpreters import InterpreterState
from imgbuild.doctor.record import HEADER, write_settings
from imgbuild.errors import MachineError
from imgbuild.matrix.model import Matrix
from imgbuild.settings import BootstrapBase, PrefixInterpreter, Settings, load_settings

DIGEST = "example/base@sha256:" + "0" * 64
HAND_MADE = f"""\
# mine
engine: {{host: "tcp://build:2375"}}
base: {{debian-12: {{from: registry, image: "{DIGEST}"}}}}
cpython: {{3.8.20: {{from: prefix, path: /opt/other}}}}
"""


def choose(matrix: Matrix, settings: Settings, state: InterpreterState) -> Settings:
    return Inputs(matrix, settings, DEBIAN, FakePrograms(), "/ca.pem").choose([state])


def test_the_choice_on_a_machine_that_has_nothing_set(matrix: Matrix) -> None:
    state = InterpreterState("3.6.15", "https://x/", "no route", (Path("/opt/local"),))
    choice = choose(matrix, Settings(), state)
    assert choice.base == {"debian-12": BootstrapBase()}
    assert choice.cpython == {"3.6.15": PrefixInterpreter(source="prefix", path="/opt/local")}
    assert choice.ca_bundle == "/ca.pem"


def test_what_was_set_by_hand_stays(matrix: Matrix, tmp_path: Path) -> None:
    path = tmp_path / "imgbuild.local.yaml"
    path.write_text(HAND_MADE)
    before = load_settings(path)
    choice = choose(matrix, before, InterpreterState("3.6.15", "https://x/", None, ()))
    assert (choice.engine, choice.base) == (before.engine, before.base)
    assert choice.cpython["3.8.20"] == before.cpython["3.8.20"]


def test_writing_and_reading_back(matrix: Matrix, tmp_path: Path) -> None:
    path = tmp_path / "imgbuild.local.yaml"
    state = InterpreterState("3.6.15", "https://x/", None, ())
    choice = choose(matrix, Settings(), state)
    assert write_settings(choice, path)
    assert path.read_text().startswith(HEADER)
    assert load_settings(path) == choice
    assert not write_settings(choice, path)


def test_a_file_that_says_the_same_keeps_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "imgbuild.local.yaml"
    path.write_text(HAND_MADE)
    assert not write_settings(load_settings(path), path)
    assert path.read_text() == HAND_MADE


def test_no_settings_at_all(tmp_path: Path) -> None:
    path = tmp_path / "imgbuild.local.yaml"
    write_settings(Settings(), path)
    assert load_settings(path) == Settings()


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "imgbuild.local.yaml"
    path.write_text(HAND_MADE)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(MachineError, match="No space left"):
        write_settings(Settings(), path)
    assert path.read_text() == HAND_MADE
    assert list(tmp_path.iterdir()) == [path]
