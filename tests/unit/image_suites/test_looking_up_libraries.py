"""Looking up the libraries of ELF files: as the loader does, and what explains one not found."""

import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from library_rules import debian_package, unexplained
from standard_library import may_be_missing, modules

from imgbuild.matrix.images import Image
from support.project_copy import ROOT

SITE = "/opt/python/lib/python3.6/site-packages"
NEEDED, SONAME, RPATH, RUNPATH = 1, 14, 15, 29
SECTION = struct.Struct("<IIQQQQIIQQ")


def elf(*tags: tuple[int, str]) -> bytes:
    """Return a file with these entries of its dynamic section."""
    strings, dynamic = b"\0", b""
    for tag, text in tags:
        dynamic += struct.pack("<qQ", tag, len(strings))
        strings += text.encode() + b"\0"
    headers, body = b"", b""
    for kind, content, size in ((3, strings, 0), (6, dynamic, 16)):
        headers += SECTION.pack(0, kind, 0, 0, 64 + len(body), len(content), 0, 0, 8, size)
        body += content
    head = struct.pack("<6s34xQ10xHHH", b"\x7fELF\x02\x01", 64 + len(body), 64, 2, 0)
    return head + body + headers


@pytest.fixture
def links(import_program: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the program as a module, on a machine whose loader has nothing in its cache."""
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(subprocess, "check_output", lambda *_, **__: "0 libs found\n")
    module = import_program("elf_links")
    monkeypatch.setattr(module, "DEFAULT", ())
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Give a folder with a library."""
    for name in ("bin", "lib"):
        (tmp_path / name).mkdir()
    (tmp_path / "lib" / "liba.so.1").write_bytes(elf())
    return tmp_path


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ([], False),
        ([(RUNPATH, "$ORIGIN/../lib")], True),
        ([(RPATH, "${ORIGIN}/../lib")], True),
        ([(RPATH, "$ORIGIN/../lib"), (RUNPATH, "/elsewhere")], False),
    ],
    ids=["nowhere", "RUNPATH", "RPATH", "RPATH does not count"],
)
def test_a_library_is_looked_up_as_the_loader_does(
    links: Any, tree: Path, tags: list[tuple[int, str]], *, found: bool
) -> None:
    (tool := tree / "bin" / "tool.so").write_bytes(elf((NEEDED, "liba.so.1"), *tags))
    missing = [str(tool), "liba.so.1", [str(tree / "lib" / "liba.so.1")]]
    expected = {"files": 2, "missing": [] if found else [missing], "unread": {}}
    assert links.links(str(tree)) == expected


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Give a folder with a module, whose library in .libs needs another one that lies beside it."""
    (lib := tmp_path / ".libs").mkdir()
    (lib / "liba.so.1").write_bytes(elf((NEEDED, "libb.so.1"), (SONAME, "liba.so.1")))
    (lib / "libb.so.1").write_bytes(elf())
    (tmp_path / "module.so").write_bytes(elf((NEEDED, "liba.so.1"), (RPATH, "$ORIGIN/.libs")))
    return tmp_path


def _missing(links: Any, folder: Path) -> set[tuple[str, str]]:
    """Return the files that miss a library, relative to the folder, with the library's name."""
    found = links.links(str(folder))["missing"]
    return {(str(Path(path).relative_to(folder)), name) for path, name, _ in found}


def test_links_inherit_rpath(links: Any, package: Path) -> None:
    assert _missing(links, package) == set()


def test_links_do_not_inherit_runpath(links: Any, package: Path) -> None:
    (package / "module.so").write_bytes(elf((NEEDED, "liba.so.1"), (RUNPATH, "$ORIGIN/.libs")))
    assert _missing(links, package) == {(".libs/liba.so.1", "libb.so.1")}


def test_links_with_runpath_inherit_nothing(links: Any, package: Path) -> None:
    body = elf((NEEDED, "libb.so.1"), (RUNPATH, "/elsewhere"))
    (package / ".libs" / "liba.so.1").write_bytes(body)
    assert _missing(links, package) == {(".libs/liba.so.1", "libb.so.1")}


def test_links_inherit_through_runpath(links: Any, package: Path) -> None:
    body = elf((NEEDED, "libb.so.1"), (RUNPATH, "$ORIGIN"))
    (package / ".libs" / "liba.so.1").write_bytes(body)
    (package / ".libs" / "libb.so.1").write_bytes(elf((NEEDED, "libc.so.1")))
    (package / ".libs" / "libc.so.1").write_bytes(elf())
    assert _missing(links, package) == set()


def test_links_judge_each_start(links: Any, package: Path) -> None:
    """One module finds all; what another one loads without an RPATH still misses a library."""
    body = elf((NEEDED, "liba.so.1"), (RUNPATH, "$ORIGIN/.libs"))
    (package / "other.so").write_bytes(body)
    assert _missing(links, package) == {(".libs/liba.so.1", "libb.so.1")}


def test_links_judge_a_cycle_that_nothing_loads(links: Any, package: Path) -> None:
    (package / "module.so").unlink()
    (package / ".libs" / "libb.so.1").write_bytes(elf((NEEDED, "liba.so.1")))
    assert (".libs/liba.so.1", "libb.so.1") in _missing(links, package)


def test_links_know_loaded_libraries_by_soname(links: Any, package: Path) -> None:
    """The loader looks for no library that is loaded under this name, whatever its file's name."""
    named = elf((SONAME, "libx.so.7"))
    (package / "lib-0123.so").write_bytes(named)
    (package / "user.so").write_bytes(elf((NEEDED, "libx.so.7")))
    tags = ((NEEDED, "lib-0123.so"), (NEEDED, "user.so"), (RUNPATH, "$ORIGIN"))
    (package / "tool.so").write_bytes(elf(*tags))
    assert _missing(links, package) == set()


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("libGL.so.1", "libgl1"),
        ("libSM.so.6", "libsm6"),
        ("libX11.so.6", "libx11-6"),
        ("libgthread-2.0.so.0", "libglib2.0-0"),
        ("libstdc++.so.6", "libstdc++6"),
        ("libgfortran-ed201abd.so.3", None),
        ("libavcodec-7ef.so.58.54.100", None),
    ],
)
def test_debian_package_of_a_library(name: str, package: str | None) -> None:
    assert debian_package(name) == package
    lines = unexplained([("/x.so", name, [])], gpu=False)
    assert lines[-1] == f"/x.so needs {name}: not in the image"
    assert len(lines) == (2 if package else 1)
    assert (package or name) in lines[0]


def test_the_environment_says_where_to_look_and_what_cannot_be_read_is_told(
    links: Any, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "tool.so").write_bytes(elf((NEEDED, "liba.so.1")))
    (tree / "old.so").write_bytes(b"\x7fELF\x01\x01 of 32 bits")
    (tree / "cut.so").write_bytes(b"\x7fELF\x02\x01 without sections".ljust(64, b"\0"))
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tree / 'lib'}")
    found = links.links(str(tree))
    unread = {str(tree / name) for name in ("old.so", "cut.so")}
    assert (found["missing"], {*found["unread"]}) == ([], unread)


MPI_LIB, FRAMEWORK = f"{SITE}/horovod/tensorflow/mpi_lib.so", "libtensorflow_framework.so.2"
FRAMEWORKS = f"{SITE}/tensorflow/{FRAMEWORK}"
FABRICS = "/opt/impi/lib/libfabric/prov"


@pytest.mark.parametrize(
    ("asker", "name", "places", "of_gpu", "of_cpu"),
    [
        (MPI_LIB, FRAMEWORK, [FRAMEWORKS], True, True),
        (MPI_LIB, FRAMEWORK, [], False, False),
        ("/usr/bin/tool", FRAMEWORK, [FRAMEWORKS], False, False),
        (f"{SITE}/tensorflow/libtensorflow_framework.so", "libcuda.so.1", [], True, False),
        (f"{FABRICS}/libverbs-1.12-fi.so", "librdmacm.so.1", [], True, True),
        (f"{FABRICS}/libtcp-fi.so", "librdmacm.so.1", [], False, False),
        ("/opt/impi/lib/libtmip_psm2.so.1.0", "libpsm2.so.2", [], True, True),
        ("/opt/impi/lib/libtmi.so.1.2", "libpsm2.so.2", [], False, False),
    ],
)
def test_what_is_not_where_the_loader_looks_must_have_a_reason(
    asker: str, name: str, places: list[str], *, of_gpu: bool, of_cpu: bool
) -> None:
    """Another package has loaded it, it is the driver's, or a plugin may lack it.

    That the libraries of the images have one is seen by the suite in each of them.
    """
    for gpu, explained in ((True, of_gpu), (False, of_cpu)):
        assert (unexplained([(asker, name, places)], gpu=gpu) == []) is explained


def test_modules_that_may_be_missing_are_documented(images: dict[str, Image]) -> None:
    """That an image has all others is seen by the suite in each of them."""
    documented = (ROOT / "docs" / "contents.md").read_text(encoding="utf-8")
    for image in images.values():
        (python,) = (pin.version for pin in image.pins if pin.component == "python")
        missing = may_be_missing(python, image.os.distribution, standin=False)
        assert {"dbm.gnu", "tkinter"} <= missing < {*modules(python)}
        assert [name for name in missing if f"`{name}`" not in documented] == []
    assert "binhex" in modules("3.10.1")
    assert "tomllib" not in modules("3.10.1")
    assert {"tomllib"} == {*modules("3.11.2")} - {*modules("3.10.1")}


def test_default_folders_are_those_of_the_loader(import_program: Any) -> None:
    loader = ["/lib64/ld-linux-x86-64.so.2", "--list-diagnostics"]
    facts = subprocess.run(loader, capture_output=True, text=True, check=True).stdout
    folders = re.findall(r'^path\.system_dirs\[\w+\]="(.+)/"$', facts, re.MULTILINE)
    default = import_program("elf_links").DEFAULT
    assert folders
    assert list(default[: len(folders)]) == folders
