"""``slim.py``: what goes, what stays, and that RECORD is right, on libraries made here."""

import base64
import csv
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.core.project import Project

SOURCE = """
int exported(void) { return 42; }
static int hidden(void) { return 1; }
int (*keep)(void) = hidden;
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shared library with debug information and SONAME ``libx.so.1``."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc, which make check asks nobody to install; CI has it")
    folder = tmp_path_factory.mktemp("library")
    (folder / "x.c").write_text(SOURCE)
    made = folder / "libx-0123abcd.so.1"
    options = ["-g", "-shared", "-fPIC", "-Wl,-soname,libx.so.1"]
    subprocess.run(["gcc", *options, "-o", made, folder / "x.c"], check=True)
    return made


@pytest.fixture
def tree(tmp_path: Path, library: Path) -> Path:
    """Return site-packages with one distribution of a library, a module and tests."""
    folder = tmp_path / "site-packages"
    for name in ("numpy/tests/test_x.py", "numpy/testing/x.py", "other/tests/x.py", "numpy/x.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")
    (folder / "numpy.libs").mkdir()
    shutil.copy(library, folder / "numpy.libs")
    record(folder, "numpy", ["numpy", "numpy.libs", "other"])
    return folder


def record(tree: Path, name: str, folders: list[str]) -> None:
    info = tree / f"{name}-1.0.dist-info"
    info.mkdir()
    files = [p for folder in folders for p in sorted((tree / folder).rglob("*")) if p.is_file()]
    rows = [row(path, tree) for path in files]
    with (info / "RECORD").open("w", newline="") as stream:
        csv.writer(stream).writerows([*rows, [f"{info.name}/RECORD", "", ""]])


def row(path: Path, tree: Path) -> list[str]:
    digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=")
    return [str(path.relative_to(tree)), f"sha256={digest.decode()}", str(path.stat().st_size)]


def recorded(tree: Path, name: str) -> dict[str, list[str]]:
    text = (tree / f"{name}-1.0.dist-info" / "RECORD").read_text()
    return {line[0]: line for line in csv.reader(text.splitlines())}


@pytest.fixture
def run(project: Project) -> Callable[..., None]:
    def call(tree: Path, *options: str) -> None:
        script = project.files / "packages" / "slim.py"
        subprocess.run([sys.executable, script, tree, *options], check=True)

    return call


def symbols(path: Path, *options: str) -> str:
    return subprocess.check_output(["nm", *options, path], text=True, stderr=subprocess.STDOUT)


def test_what_only_debuggers_and_tests_read_goes_and_the_record_says_so(
    tree: Path, run: Callable[..., None], library: Path
) -> None:
    """Exported symbols and interfaces stay, and tests of packages that have small ones."""
    run(tree)
    stripped = tree / "numpy.libs" / library.name
    assert "hidden" in symbols(library)
    assert "hidden" not in symbols(stripped)
    assert "T exported" in symbols(stripped, "--dynamic")
    assert stripped.stat().st_size < library.stat().st_size
    loaded = f"import ctypes; print(ctypes.CDLL({str(stripped)!r}).exported())"
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True) == "42\n"
    left = {str(path.relative_to(tree)) for path in tree.rglob("*.py")}
    assert left == {"numpy/testing/x.py", "numpy/x.py", "other/tests/x.py"}
    rows = recorded(tree, "numpy")
    assert "numpy/tests/test_x.py" not in rows
    assert all(line == row(tree / name, tree) for name, line in rows.items() if line[1])


#: As strip does to what patchelf moved: a segment no longer at its offset in a page.
SPOILS = f"""#!{sys.executable}
import struct, sys
data = bytearray(open(sys.argv[-1], 'rb').read()[:-1])
at = struct.unpack_from('<Q', data, 32)[0]
while struct.unpack_from('<I', data, at)[0] != 1: at += 56
struct.pack_into('<Q', data, at + 8, 8)
open(sys.argv[4], 'wb').write(data)
"""


@pytest.mark.parametrize("strip", [SPOILS, "#!/bin/sh\nexit 1\n"], ids=["spoils", "fails"])
def test_a_library_that_strip_cannot_do_stays_as_it_is(
    tree: Path,
    run: Callable[..., None],
    library: Path,
    strip: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tree.parent / "strip"
    program.write_text(strip)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tree.parent), prepend=os.pathsep)
    run(tree)
    kept = tree / "numpy.libs" / library.name
    assert kept.read_bytes() == library.read_bytes()
    assert [*kept.parent.iterdir()] == [kept]


@pytest.fixture
def above(tmp_path: Path, library: Path) -> Path:
    """Return the tree of another layer, whose package bundles the same library."""
    folder = tmp_path / "above"
    (folder / "scipy" / ".libs").mkdir(parents=True)
    shutil.copy(library, folder / "scipy" / ".libs")
    record(folder, "scipy", ["scipy"])
    return folder


@pytest.mark.parametrize(
    ("name", "soname"),
    [
        ("libx-0123abcd.so.1", b"libx.so.1"),
        ("libx-0123abcd.so.1", b"liby.so.1"),
        ("liby.so.1", b"libx.so.1"),
    ],
    ids=["same", "other-soname", "other-name"],
)
def test_only_the_library_that_is_below_becomes_a_link(
    tree: Path, above: Path, run: Callable[..., None], name: str, soname: bytes
) -> None:
    (copy,) = (above / "scipy" / ".libs").iterdir()
    same = (name, soname) == (copy.name, b"libx.so.1")
    link = copy.rename(copy.with_name(name))
    link.write_bytes(link.read_bytes().replace(b"libx.so.1", soname))
    run(above, "--below", str(tree))
    assert link.is_symlink() is same
    if same:
        assert str(link.readlink()) == f"../../numpy.libs/{name}"
        assert recorded(above, "scipy")[f"scipy/.libs/{name}"][1:] == ["", ""]
