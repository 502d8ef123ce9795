"""The programs that run in the builder stage stop the build when what they rest on is not so."""

import subprocess
import sys
from pathlib import Path

import pytest

from imgbuild.core.project import Project

GOOD = """static _Res _M_invoke(const _Any_data& __functor, _ArgTypes&&... __args)
using _Invoker_type = _Res (*)(const _Any_data&, _ArgTypes&&...);
"""


def _run(program: Path, *arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(program), *arguments],
        env={"PYTHONPATH": str(path), "PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("version_class", ["", "class version: "])
@pytest.mark.parametrize(("expected", "code"), [("4.8.4", 0), ("7.3.1", 1)])
def test_another_compiler_than_the_matrix_says(
    project: Project, tmp_path: Path, version_class: str, expected: str, code: int
) -> None:
    (tmp_path / "tensorflow.py").write_text(f"{version_class}COMPILER_VERSION = '4.8.5'")
    result = _run(project.files / "horovod" / "check_compiler.py", expected, path=tmp_path)
    assert result.returncode == code
    assert ("built by gcc 4.8.5; the matrix says 7.3.1" in result.stderr) is bool(code)


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (GOOD, ""),
        (GOOD.replace("_ArgTypes&&... __args", "_ArgTypes... __args"), "another shape"),
        (GOOD.replace("_Invoker_type", "_Other_type"), "another shape"),
        ("", "is it older than 7?"),
    ],
)
def test_a_header_of_another_shape(
    project: Project, tmp_path: Path, header: str, fault: str
) -> None:
    source = tmp_path / "bits" / "std_function.h"
    source.parent.mkdir()
    source.write_text(header)
    line = f'# 1 "{source}"' if header else "nothing of the kind"
    (tmp_path / "g++").write_text(f"#!/bin/sh\necho '{line}'\n")
    (tmp_path / "g++").chmod(0o755)
    target = tmp_path / "out"
    result = _run(project.files / "gcc4_std_function.py", str(target), path=tmp_path)
    assert fault in result.stderr
    assert bool(result.returncode) is bool(fault)
    written = [path.read_text() for path in target.rglob("*.h")]
    assert len(written) == (0 if fault else 1)
    assert "&&" not in "".join(written)


GUARD = "#if __AVX__ && __F16C__\n"
#: A choice by type; a call with the types of its arguments.
CHOICE = """    if (horovod_datatype == DataType::HOROVOD_FLOAT16) {
      %sfp16(a, b);
    } else
#endif
    if (horovod_datatype == DataType::HOROVOD_FLOAT32) {
      %s;
    } else {
    }
"""
DOTS = "ComputeDotAndNormSqrds((float*)a, (float*)b, count)"
SUMS = "ScaledAdd(count, acoeff, (float*)a, bcoeff, (float*)b, layerid)"
FUNCTIONS = (
    *("void ComputeDotAndNormSqrdsfp16", "void ScaledAddfp16", "double Mm256ReductionPd"),
    *("__m256 MmLoaduPh", "void MmStorePh", "__m256 MmLoaduPhPartial", "void MmStorePhPartial"),
)
#: What of Horovod's adasum.h is changed, as 0.19.1 has it.
ADASUM = "".join(
    (
        f"{GUARD}#include <immintrin.h>\n#endif\n\nnamespace horovod {{\nnamespace common {{\n",
        *(GUARD + CHOICE % choice for choice in (("Dots", DOTS), ("Sums", SUMS))),
        GUARD + "".join(f"  inline {function}()\n" for function in FUNCTIONS) + "#endif\n",
    )
)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (ADASUM, ""),
        (ADASUM.replace("__F16C__", "__F16C__ && __FMA__"), ""),  # from 0.19.2 on
        (ADASUM.replace("  inline void ScaledAddfp16()\n", ""), "is there 6 times, not 7"),
        (ADASUM.replace("__F16C__", "__AVX512F__"), "is there 0 times, not 4"),
    ],
)
def test_the_header_of_adasum(project: Project, tmp_path: Path, header: str, expected: str) -> None:
    """That float16 has loops then, a suite sees in every image."""
    path = tmp_path / "horovod" / "common" / "ops" / "adasum" / "adasum.h"
    path.parent.mkdir(parents=True)
    path.write_text(header)
    result = _run(project.files / "adasum_float16.py", str(tmp_path), path=tmp_path)
    assert expected in result.stderr
    assert result.returncode == bool(expected)
    assert (path.read_text() == header) is bool(expected)
    assert expected or "F16C__" not in path.read_text()


def test_what_only_compilers_read_is_left_out_of_nvidias_packages(
    project: Project, tmp_path: Path
) -> None:
    """And RECORD says so; ptxas and libdevice, which XLA runs, stay."""
    kept = (
        *("nvidia/a/lib/liba.so.11", "nvidia/cuda_nvcc/bin/ptxas"),
        *("nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc", "nvidia_a-1.dist-info/License.txt"),
    )
    gone = (
        *("nvidia/a/include/a.h", "nvidia/a/include/crt/b.hpp", "nvidia/a/lib/liba_static.a"),
        *("nvidia/cuda_nvcc/nvvm/lib64/libnvvm.so", "nvidia/cuda_nvcc/nvvm/include/nvvm.h"),
    )
    for name in (*kept, *gone):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    record = tmp_path / "nvidia_a-1.dist-info" / "RECORD"
    record.write_text("".join(f"{name},sha256=x,1\n" for name in (*kept, *gone)))
    program, packages = project.files / "nvidia" / "leave_out.py", project.files / "packages"
    assert _run(program, str(tmp_path), path=packages).returncode == 0
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {*kept, str(record.relative_to(tmp_path))}
    assert record.read_text().splitlines() == [f"{name},sha256=x,1" for name in kept]


@pytest.mark.parametrize(
    "lines",
    [
        "deb http://m/debian {0} {1}\ndeb http://s/d {0}-security {1}\n",
        "URIs: http://m/debian\nSuites: {0} {0}-updates\nComponents: {1}\n",
    ],
)
def test_another_suite_of_the_same_archive_is_read(
    project: Project, tmp_path: Path, lines: str
) -> None:
    (tmp_path / "os-release").write_text("VERSION_CODENAME=bookworm\n")
    (tmp_path / "apt" / "d").mkdir(parents=True)
    sources, keys = tmp_path / "apt" / "d" / "a.sources", tmp_path / "apt" / "keys.gpg"
    sources.write_text(lines.format("bookworm", "main"))
    keys.write_text("bookworm main")
    script = (project.files / "cuda" / "archive").read_text("utf-8")
    words = ["sh", "-c", script.replace("/etc/", f"{tmp_path}/"), "sh", "trixie", "non-free"]
    subprocess.run(words, check=True)
    assert sources.read_text() == lines.format("trixie", "non-free")
    assert keys.read_text() == "bookworm main"
