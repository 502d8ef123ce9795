"""Looking up the libraries of ELF files: as the loader does, and what explains one not found."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from library_rules import unexplained
from standard_library import may_be_missing, modules

PROGRAMS = Path(__file__).resolve().parents[2] / "image" / "programs"
SITE = "/opt/python/lib/python3.6/site-packages"
NEEDED, RPATH, RUNPATH = 1, 15, 29


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the program as a module, on a machine whose loader has nothing in its cache."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(subprocess, "check_output", lambda *_, **__: "0 libs found\n")
    module = __import__("elf_links")
    monkeypatch.setattr(module, "DEFAULT", ())
    return module


def _elf(path: Path, *tags: tuple[int, str]) -> None:
    """Write an ELF file with these entries of its dynamic section, and nothing else."""
    names, entries = b"\0", b""
    for tag, text in tags:
        entries += struct.pack("<qQ", tag, len(names))
        names += text.encode() + b"\0"
    header, section = 64, struct.Struct("<IIQQQQIIQQ")
    begin = header + 2 * section.size
    table = section.pack(0, 6, 0, 0, begin, len(entries), 1, 0, 0, 16)
    table += section.pack(0, 3, 0, 0, begin + len(entries), len(names), 0, 0, 0, 0)
    head = bytearray(header)
    head[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", head, 40, header)
    struct.pack_into("<HH", head, 58, section.size, 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(head) + table + entries + names)


@pytest.mark.parametrize(
    ("tags", "missing"),
    [
        ([], True),
        ([(RUNPATH, "$ORIGIN/../lib")], False),
        ([(RPATH, "${ORIGIN}/../lib")], False),
        ([(RPATH, "$ORIGIN/../lib"), (RUNPATH, "/elsewhere")], True),
    ],
    ids=["nowhere", "RUNPATH", "RPATH", "RPATH does not count"],
)
def test_a_library_is_looked_up_as_the_loader_does(
    links: Any, tmp_path: Path, tags: list[tuple[int, str]], *, missing: bool
) -> None:
    program, library = tmp_path / "bin" / "tool.so", tmp_path / "lib" / "liba.so.1"
    _elf(program, (NEEDED, "liba.so.1"), *tags)
    _elf(library)
    found = links.links(str(tmp_path))
    assert found["files"] == 2
    assert found["missing"] == ([[str(program), "liba.so.1", [str(library)]]] if missing else [])


def test_the_environment_says_where_to_look(
    links: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _elf(tmp_path / "tool.so", (NEEDED, "liba.so.1"))
    _elf(tmp_path / "lib" / "liba.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path / 'lib'}")
    assert links.links(str(tmp_path))["missing"] == []


def test_what_cannot_be_read_is_told(links: Any, tmp_path: Path) -> None:
    (tmp_path / "old.so").write_bytes(b"\x7fELF\x01\x01 of 32 bits")
    assert "not a 64-bit" in links.links(str(tmp_path))["unread"][str(tmp_path / "old.so")]


def test_only_what_may_be_elf_is_opened(links: Any, tmp_path: Path) -> None:
    for name, mode in (("plain", 0o644), ("tool", 0o755), ("lib.so.1", 0o644)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    (tmp_path / "link").symlink_to("tool")
    found = {Path(path).name for path in links.candidates(str(tmp_path))}
    assert found == {"tool", "lib.so.1"}


def test_a_library_that_is_loaded_first_is_explained() -> None:
    asker = f"{SITE}/horovod/tensorflow/mpi_lib.cpython-36m-x86_64-linux-gnu.so"
    place = f"{SITE}/tensorflow/libtensorflow_framework.so.2"
    name = "libtensorflow_framework.so.2"
    assert unexplained([(asker, name, [place])], gpu=False) == []
    assert unexplained([(asker, name, [])], gpu=False) == [
        f"{asker} needs {name}: not in the image"
    ]
    lost = unexplained([("/usr/bin/tool", name, [place])], gpu=False)
    assert lost == [f"/usr/bin/tool needs {name}: not where the loader looks, but {place}"]


def test_the_driver_is_missing_in_gpu_images_only() -> None:
    missing = [(f"{SITE}/tensorflow/libtensorflow_framework.so", "libcuda.so.1", list[str]())]
    assert unexplained(missing, gpu=True) == []
    assert len(unexplained(missing, gpu=False)) == 1


def test_plugins_for_fabrics_may_do_without_them_and_no_other_may() -> None:
    plugins = "/opt/impi/lib/libfabric/prov"
    assert unexplained([(f"{plugins}/libverbs-1.12-fi.so", "librdmacm.so.1", [])], gpu=False) == []
    assert unexplained([(f"{plugins}/libtcp-fi.so", "librdmacm.so.1", [])], gpu=False)
    assert unexplained([("/opt/impi/lib/libmpi.so.12", "librdmacm.so.1", [])], gpu=False)
    assert unexplained([("/opt/impi/lib/libtmip_psm2.so.1.0", "libpsm2.so.2", [])], gpu=False) == []
    assert unexplained([("/opt/impi/lib/libtmi.so.1.2", "libpsm2.so.2", [])], gpu=False)


@pytest.mark.parametrize(
    ("asker", "name", "place"),
    [
        ("numpy.libs/libgfortran-1.so.5", "libz-9.so.1", "numpy.libs/libz-9.so.1"),
        ("h5py.libs/libhdf5_hl-1.so.3", "libhdf5-7.so.3", "h5py.libs/libhdf5-7.so.3"),
        ("horovod/tensorflow/mpi_lib.so", "_pywrap_tensorflow_internal.so", "tensorflow/python/"),
        ("tensorflow_io_gcs_filesystem/core/a.so", "libtensorflow_framework.so.2", "tensorflow/"),
    ],
)
def test_what_another_package_has_loaded_is_explained(asker: str, name: str, place: str) -> None:
    where = f"{SITE}/{place}{name if place.endswith('/') else ''}"
    assert unexplained([(f"{SITE}/{asker}", name, [where])], gpu=False) == []
    assert len(unexplained([(f"{SITE}/{asker}", name, [])], gpu=False)) == 1


@pytest.mark.parametrize(
    ("python", "os_id", "standin", "of_its_own"),
    [
        ("3.6.15", "debian", False, {"_hashlib", "dbm.ndbm"}),
        ("3.8.18", "debian", False, {"dbm.ndbm"}),
        ("3.11.2", "debian", False, {"ensurepip"}),
        ("3.6.2", "ubuntu", False, {"dbm.ndbm", "nis"}),
        ("3.6.15", "ubuntu", True, {"_hashlib", "dbm.ndbm", "nis"}),
    ],
)
def test_modules_that_may_be_missing_are_documented(
    python: str, os_id: str, standin: bool, of_its_own: set[str]
) -> None:
    documented = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
    missing = may_be_missing(python, os_id, standin=standin)
    assert missing == {"dbm.gnu", "tkinter", "turtle"} | of_its_own
    assert set(modules(python)) > missing
    assert {name for name in missing if f"`{name}`" not in documented} == set()


@pytest.mark.parametrize(
    ("python", "has", "lacks"),
    [
        ("3.6.2", "parser", "dataclasses"),
        ("3.8.18", "binhex", "zoneinfo"),
        ("3.11.2", "tomllib", "binhex"),
    ],
)
def test_a_release_of_python_has_its_own_modules(python: str, has: str, lacks: str) -> None:
    found = modules(python)
    assert (has in found, lacks in found) == (True, False)
    assert len(found) == len({*found})


def test_modules_that_cannot_be_imported_are_told() -> None:
    words = [sys.executable, str(PROGRAMS / "import_modules.py"), "json", "xml.nothing", "_none"]
    found = json.loads(subprocess.check_output(words))
    assert found == {
        "xml.nothing": "No module named 'xml.nothing'",
        "_none": "No module named '_none'",
    }
