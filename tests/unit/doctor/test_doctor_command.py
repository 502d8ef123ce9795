"""The command: exit codes, what it prints, what it chooses and what it writes."""

import json
import re
import sys
from collections.abc import Sequence
from inspect import unwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import certifi
import pytest

from imgbuild.build import bases
from imgbuild.cli.doctor_command import doctor
from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.core.settings import EngineSettings, base_setting, load_settings, local_prefix
from imgbuild.doctor import checks, diagnosis, input_checks
from imgbuild.doctor.checks import OWN_HOST, WRITE, Finding, Status
from imgbuild.doctor.diagnosis import HEADER, write_settings
from imgbuild.matrix.images import Image
from imgbuild.matrix.selection import Selection

pytest_plugins = ("support.doctor_fixtures",)
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


def judge(checkout: Path, *words: str, write: bool = False, as_json: bool = False) -> None:
    options = {"write": write, "as_json": as_json, "builder": None, "platform": None}
    run = unwrap(doctor)
    run(selection=Selection(words or ("2.2",)), checkout=Project(checkout), **options)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what the checks find, by their names; an exception is raised."""
    base = {"base": {"debian-12": base_setting("bootstrap")}}
    found: dict[str, Any] = {
        "find_engine": FINE,
        "check_base": Finding(Status.FINE, "base debian-12", "answers", choice=base),
        "check_ca": Finding(Status.WARNING, "CA", "private", WRITE, {"ca_bundle": str(CA)}),
        "check_index": FINE,
        "check_interpreter": FINE,
        "check_engine": [],
        "check_sites": [],
        "check_folders": [],
    }

    def tell(name: str) -> Any:
        if isinstance(found[name], Exception):
            raise found[name]
        return (None, None, found[name]) if name == "find_engine" else found[name]

    for name in found:
        module = checks if hasattr(checks, name) else input_checks
        monkeypatch.setattr(module, name, lambda *_, name=name: tell(name))
    monkeypatch.setattr(diagnosis, "check_gpus", lambda *_: [Finding(Status.SKIPPED, "GPU", "-")])
    monkeypatch.setattr(bases, "make_bases", lambda *_: None)
    return found


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "images").symlink_to(ROOT / "images")
    (tmp_path / "matrix.yaml").write_bytes((ROOT / "matrix.yaml").read_bytes())
    return tmp_path


@pytest.mark.usefixtures("machine")
def test_a_machine_that_can_build(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/venv/bin/imgbuild", "doctor", "--tf", "2.2"])
    monkeypatch.setattr("imgbuild.cli.doctor_command.find_program", lambda _: None)
    judge(checkout)
    shown = capsys.readouterr()
    assert "-> /venv/bin/imgbuild doctor --tf 2.2 --write\n" in shown.out, "PATH lacks imgbuild"
    monkeypatch.setattr("sys.argv", ["/venv/imgbuild/__main__.py", "doctor", "--tf", "2.2"])
    judge(checkout)
    shown = capsys.readouterr()
    assert shown.out.startswith("Engine\n  ✓ engine ")
    assert "\nInputs\n  ✓ base debian-12" in shown.out
    assert "private; not yet in imgbuild.local.yaml" in shown.out
    assert f"-> {sys.executable} -m imgbuild doctor --tf 2.2 --write\n" in shown.out
    assert shown.err == "tf-2.2-cpu-debian can be built here.\n"
    assert not (checkout / "imgbuild.local.yaml").exists()


@pytest.mark.usefixtures("machine")
def test_what_the_selection_needs_is_checked(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def check(image: Image, *_: object) -> Finding:
        asked.append(image.os_name)
        return Finding(Status.FINE, image.os_name, "")

    monkeypatch.setattr(input_checks, "check_base", check)
    judge(checkout, "1.10", "2.2")
    assert asked == ["debian-12"], "once for all images"
    run = unwrap(doctor)
    both = Selection(("1.10",), cpu=True, gpu=True)
    run(selection=both, checkout=Project(checkout), builder=None, platform=None)
    assert sorted(asked) == ["debian-12", "debian-12", "ubuntu-16.04"]
    with pytest.raises(InputError, match="no such TensorFlow"):
        judge(checkout, "9.9")


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("uname", "bases"),
    [("x86_64", ["debian-12", "debian-12-arm64"]), ("aarch64", ["debian-12-arm64"])],
)
def test_an_image_for_arm64_needs_the_bases_that_its_build_uses(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, uname: str, bases: list[str]
) -> None:
    asked: list[str] = []

    def check(image: Image, *_: object) -> Finding:
        asked.append(image.base_name)
        return Finding(Status.FINE, image.base_name, "")

    monkeypatch.setattr(input_checks, "check_base", check)
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(machine=uname))
    named = Selection(names=("tf-2.15-cpu-debian-arm64",))
    unwrap(doctor)(
        selection=named, checkout=Project(checkout), builder=None, platform=None, write=False
    )
    assert sorted(asked) == bases


def test_a_check_that_cannot_be_made_is_a_finding(
    machine: dict[str, Any], checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine["check_ca"] = PermissionError(13, "Permission denied", "/x")
    machine["check_folders"] = InputError("no word of it")
    with pytest.raises(MachineError, match=r"cannot be built here yet\..*: CA bundle, folders"):
        judge(checkout)
    said = capsys.readouterr().out
    assert f"✗ CA bundle       cannot be checked: {machine['check_ca']}" in said
    assert "✗ folders         cannot be checked: no word of it" in said


def test_a_machine_that_cannot(
    machine: dict[str, Any], checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine["find_engine"] = MISSING
    with pytest.raises(
        MachineError, match=r"-cpu-debian cannot be built here yet\..*: eng"
    ) as caught:
        judge(checkout)
    assert caught.value.exit_code == 3
    assert f"-> {MISSING.fix}" in capsys.readouterr().out
    with pytest.raises(MachineError):
        judge(checkout, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["able"], found["images"]) == (False, ["tf-2.2-cpu-debian"])
    engine = {"what": "engine", "detail": MISSING.detail, "fix": MISSING.fix}
    assert found["findings"][0] == {"group": "Engine", "status": "missing", **engine}
    assert found["choice"]["base"] == {"debian-12": {"from": "bootstrap"}}


def test_write_records_every_choice(
    machine: dict[str, Any], checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = {"engine": EngineSettings(host=OWN_HOST)}
    python = {"cpython": {"3.6.15": local_prefix(Path("/opt/p"))}}
    machine["find_engine"] = Finding(Status.MISSING, "engine", "28.5", WRITE, engine)
    machine["check_interpreter"] = Finding(Status.MISSING, "CPython", "prefix", WRITE, python)
    judge(checkout, write=True)
    path = checkout / "imgbuild.local.yaml"
    assert path.read_text().startswith(HEADER)
    assert {"publishing", "step_timeout"}.isdisjoint(re.findall(r"\w+", path.read_text()))
    written = load_settings(path)
    assert written.engine.host == OWN_HOST
    assert written.base == {"debian-12": base_setting("bootstrap")}
    assert written.cpython == python["cpython"]
    assert written.ca_bundle == str(CA)
    assert f"{path}: written." in capsys.readouterr().err
    judge(checkout, write=True)
    assert f"{path}: unchanged" in capsys.readouterr().err


def test_write_makes_bases_unless_their_checks_fail(
    machine: dict[str, Any],
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made: list[list[str]] = []

    def make(images: Sequence[Image], *_: object) -> None:
        made.append([image.os_name for image in images])

    monkeypatch.setattr(bases, "make_bases", make)
    judge(checkout)
    assert made == [], "nothing is made without --write"
    judge(checkout, write=True)
    assert made == [["debian-12"]]
    machine["check_base"] = Finding(Status.MISSING, "base debian-12", "not made yet", WRITE)
    with pytest.raises(MachineError, match="base debian-12"):
        judge(checkout)
    assert "not made yet\n" in capsys.readouterr().out
    judge(checkout, write=True)
    assert made == [["debian-12"], ["debian-12"]]
    machine["check_base"] = Finding(Status.MISSING, "base debian-12", "no archive")
    with pytest.raises(MachineError, match="base debian-12"):
        judge(checkout, write=True)
    machine["check_base"] = Finding(Status.MISSING, "base debian-12", "not made yet", WRITE)
    machine["find_engine"] = MISSING
    with pytest.raises(MachineError, match="engine, base debian-12"):
        judge(checkout, write=True)
    assert made == [["debian-12"], ["debian-12"], []]


def test_write_looks_for_every_interpreter_of_the_stack(
    checkout: Path, machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that no selected image needs may be missing."""
    del machine["check_interpreter"]
    asked: list[str] = []

    def check(image: Image, *_: object) -> Finding:
        version = image.version_of("python")
        asked.append(version)
        status = Status.FINE if version == "3.6.15" else Status.MISSING
        return Finding(status, version, "", None, {"cpython": {version: local_prefix(Path("/p"))}})

    monkeypatch.setattr(input_checks, "check_interpreter", check)
    judge(checkout)
    assert asked == ["3.6.15"]
    judge(checkout, write=True)
    assert {"3.6.15", "3.8.18"} <= {*load_settings(checkout / "imgbuild.local.yaml").cpython}
    with pytest.raises(MachineError, match=r"3\.8\.18"):
        judge(checkout, "2.4", write=True)


def test_write_looks_for_interpreters_of_the_platform_alone(
    checkout: Path, machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build of another image for this platform needs them, and none for another platform."""
    del machine["check_interpreter"]
    asked: list[tuple[str, str]] = []

    def check(image: Image, *_: object) -> Finding:
        asked.append((image.version_of("python"), image.platform))
        return Finding(Status.FINE, "CPython", "")

    monkeypatch.setattr(input_checks, "check_interpreter", check)
    options = {"write": True, "as_json": False, "builder": None, "platform": "linux/arm64"}
    unwrap(doctor)(selection=Selection(("2.15",)), checkout=Project(checkout), **options)
    assert {*asked} == {("3.11.2", "linux/arm64"), ("3.8.18", "linux/arm64")}


def test_write_keeps_what_was_set_by_hand(machine: dict[str, Any], checkout: Path) -> None:
    machine["check_base"] = FINE
    path = checkout / "imgbuild.local.yaml"
    path.write_text(HAND_MADE)
    before = load_settings(path)
    assert not write_settings(before, path, before)
    assert path.read_text() == HAND_MADE, "a file that says the same keeps its comments"
    judge(checkout, write=True)
    after = load_settings(path)
    assert (after.engine, after.base) == (before.engine, before.base)
    assert after.cpython["3.6.2"] == before.cpython["3.6.2"]
