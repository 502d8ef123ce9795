"""Anaconda's stand-ins: packages in conda's format, and the small conda that installs them."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from standin.anaconda import _header, _installers, _packages
from standin.conda_interpreter import PLACEHOLDER, package_of
from standin.conda_package import parse_name, write_package
from standin.context import HERE

if TYPE_CHECKING:
    from pathlib import Path

    from imgbuild.matrix.model import Matrix

NAME = "ca-certificates-2018.03.07-h1_2.tar.bz2"


@pytest.fixture
def conda(tmp_path: Path) -> Path:
    program = tmp_path / "root" / "bin" / "conda"
    program.parent.mkdir(parents=True)
    program.write_bytes((HERE / "files" / "conda.in").read_bytes())
    return program


@pytest.fixture
def package(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin" / "run").write_text(f"#!{PLACEHOLDER}/bin/python\n")
    (tree / "bin" / "run").chmod(0o755)
    (tree / "bin" / "same").symlink_to("run")
    (tree / "data").write_bytes(b"plain")
    write_package(tree, parse_name(NAME), tmp_path / NAME)
    return tmp_path / NAME


def run(conda: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(conda), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def create(conda: Path, lines: str, prefix: Path) -> subprocess.CompletedProcess[str]:
    explicit = prefix.with_suffix(".txt")
    explicit.write_text(lines)
    options = ["--offline", "--yes", "--no-default-packages", "--prefix", str(prefix)]
    return run(conda, "create", *options, "--file", str(explicit))


def test_a_name_has_three_parts() -> None:
    package = parse_name(NAME)
    assert (package.name, package.version, package.build) == (
        "ca-certificates", "2018.03.07", "h1_2",
    )  # fmt: skip
    assert package.index["build_number"] == 2


def test_what_is_no_package_is_refused() -> None:
    with pytest.raises(ValueError, match="no name of a conda package"):
        parse_name("python.tar.bz2")


def test_a_package_says_what_is_in_it(package: Path) -> None:
    with tarfile.open(package) as archive:
        names = archive.getnames()
        stream = archive.extractfile("info/has_prefix")
        assert stream
        prefixed = stream.read().decode()
    assert {"info/index.json", "info/files", "info/paths.json", "bin/run", "data"} <= {*names}
    assert prefixed == f"{PLACEHOLDER} text bin/run\n"


def test_an_environment_is_made_of_a_file(conda: Path, package: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "environment"
    result = create(conda, f"@EXPLICIT\nfile://{package}#0123\n", prefix)
    assert result.returncode == 0, result.stderr
    assert (prefix / "bin" / "run").read_text() == f"#!{prefix}/bin/python\n"
    assert (prefix / "bin" / "same").readlink().name == "run"
    record = json.loads((prefix / "conda-meta" / NAME.replace(".tar.bz2", ".json")).read_text())
    assert (record["name"], record["files"]) == ("ca-certificates", ["bin/run", "bin/same", "data"])
    assert "2018.03.07" in run(conda, "list", "-p", str(prefix)).stdout


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("python=3.6\n", "@EXPLICIT"),
        ("@EXPLICIT\nhttps://example.org/x.tar.bz2\n", "offline"),
    ],
)
def test_other_requests_are_refused(conda: Path, tmp_path: Path, lines: str, said: str) -> None:
    result = create(conda, lines, tmp_path / "environment")
    assert result.returncode != 0
    assert said in result.stderr


def test_a_prefix_in_a_binary_is_replaced_at_equal_length(conda: Path) -> None:
    replaced = runpy.run_path(str(conda))["replaced"]
    content = replaced(b"a\0/opt/old/prefix/lib\0b", "/opt/old/prefix", "binary", "/opt/new")
    assert content == b"a\0/opt/new/lib" + b"\0" * 8 + b"b"


def test_version_and_clean(conda: Path) -> None:
    assert run(conda, "--version").stdout == "conda 4.5.11\n"
    assert run(conda, "clean", "-ay").returncode == 0


def test_info_says_where_it_lies(conda: Path) -> None:
    known = json.loads(run(conda, "info", "--json").stdout)
    assert known["root_prefix"] == str(conda.parents[1])
    assert f"root_prefix : {conda.parents[1]}\n" in run(conda, "info").stdout


def test_an_environment_without_records_lists_nothing(conda: Path) -> None:
    result = run(conda, "list")
    assert result.returncode == 0, result.stderr
    assert all(line.startswith("#") for line in result.stdout.splitlines())


def test_the_installer_knows_where_its_archive_begins() -> None:
    header = _header("Miniconda3-4.5.11-Linux-x86_64.sh", b"payload")
    lines = header.count(b"\n") + 1
    assert f"tail -n +{lines} ".encode() in header
    assert b"{" not in header.replace(b"${", b"")


def test_packages_and_installers_are_those_of_the_matrix(matrix: Matrix) -> None:
    assert any(path.endswith(".tar.bz2") for path in _packages(matrix)["3.6"])
    assert all(path.startswith("miniconda/") for path in _installers(matrix))


def test_libraries_belong_to_packages() -> None:
    assert package_of("libssl.so.3") == "openssl"
    assert package_of("libbz2.so.1.0") == "python"
