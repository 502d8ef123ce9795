"""``.ci/handover``: what a build hands to the job that publishes, and where it may come to lie."""

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from support.project_copy import ROOT

DOCKER = """#!/bin/sh
echo "$*" >> "$ASKED"
case $1 in save) echo of the engine ;; load) gzip -d > "$ASKED.loaded" ;; esac
"""
IMGBUILD = """#!/bin/sh
echo "$*" >> "$ASKED"
echo '[{"name": "a", "tags": ["t/f:1", "t/f:1.0"]}, {"name": "b", "tags": ["t/f:2"]}]'
"""
NAMES = ("a", "b")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return a checkout whose programs only say what they are asked."""
    for name, text in (("bin/docker", DOCKER), (".venv/bin/imgbuild", IMGBUILD)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    return tmp_path


def _called(machine: Path, home: str, *words: str, check: bool = True) -> list[str]:
    """Return what the programs were asked; ``home`` is that of one of two machines."""
    asked = machine / f"asked-{home}"
    environment = {"PATH": f"{machine}/bin:{os.environ['PATH']}", "ASKED": str(asked)}
    subprocess.run(
        [str(ROOT / ".ci" / "handover"), *words],
        cwd=machine,
        env={**environment, "HOME": str(machine / home)},
        check=check,
        capture_output=True,
    )
    return asked.read_text(encoding="utf-8").splitlines()


def test_what_is_packed_is_there_on_the_other_machine(machine: Path) -> None:
    handed = {".local/state/imgbuild/reports/1.json", ".cache/imgbuild/base/made-here"}
    for name in (*handed, ".local/state/imgbuild/netrc"):
        (machine / "one" / name).parent.mkdir(parents=True, exist_ok=True)
        (machine / "one" / name).write_text(name, encoding="utf-8")
    asked = _called(machine, "one", "pack", "out", *NAMES)
    assert asked == [f"list {' '.join(NAMES)} --json", "save t/f:1 t/f:1.0 t/f:2"]
    assert _called(machine, "other", "unpack", "out") == ["load --quiet"]
    assert (machine / "asked-other.loaded").read_text(encoding="utf-8") == "of the engine\n"
    files = (path for path in (machine / "other").rglob("*") if path.is_file())
    found = {str(path.relative_to(machine / "other")): path.read_text("utf-8") for path in files}
    assert found == {name: name for name in handed}


def test_wheels_that_one_machine_compiled_are_those_of_the_next(machine: Path) -> None:
    wheel = ".cache/imgbuild/horovod-wheels/0123/horovod.whl"
    for home in ("one", "other"):  # the first gets none
        (machine / f"asked-{home}").touch()
        _called(machine, home, "give-wheels", "wheels")
        if home == "one":
            (machine / home / wheel).parent.mkdir()
            (machine / home / wheel).write_text("compiled", encoding="utf-8")
            _called(machine, home, "take-wheels", "wheels")
    assert (machine / "other" / wheel).read_text(encoding="utf-8") == "compiled"


@pytest.mark.parametrize(
    "name", ["../escaped", "/ABSOLUTE", "reports/../../escaped", "link/escaped"]
)
def test_nothing_is_unpacked_elsewhere(machine: Path, name: str) -> None:
    (machine / "out").mkdir()
    (machine / "out/images.tar.gz").write_bytes(gzip.compress(b""))
    outside, state = machine / "outside", machine / "other/.local/state/imgbuild"
    outside.mkdir()
    with tarfile.open(machine / "out/bases.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("base/x"))
    with tarfile.open(machine / "out/reports.tar.gz", "w:gz") as tar:
        link = tarfile.TarInfo("reports/link")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        tar.addfile(link)
        own = name.replace("/ABSOLUTE", f"{outside}/escaped").replace("link/", "reports/link/")
        tar.addfile(tarfile.TarInfo(own), io.BytesIO())
    _called(machine, "other", "unpack", "out", check=False)
    assert (state / "reports").is_dir()
    assert [
        path for path in machine.rglob("escaped") if state / "reports" not in path.parents
    ] == []
