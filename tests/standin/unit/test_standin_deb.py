"""Packages and repositories: Debian's own tools read what is written."""

from __future__ import annotations

import hashlib
import subprocess
from typing import TYPE_CHECKING

import pytest

from standin.apt_repository import write_flat, write_suite
from standin.deb import Member, Package, open_tar, parse_control, read_archive, renamed, write_deb
from standin.signing import SigningKey, _make_key

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = Package(
    "demo",
    "1:2.0-1+cuda9.0",
    "nothing",
    {"Depends": "libc6"},
    {"usr/bin/demo": Member(b"#!/bin/sh\n", 0o755), "usr/bin/link": Member(link="demo")},
    {"triggers": "activate-noawait ldconfig\n"},
)


@pytest.fixture
def deb(tmp_path: Path) -> Path:
    path = tmp_path / PACKAGE.file_name
    write_deb(PACKAGE, path)
    return path


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    folder = tmp_path_factory.mktemp("key")
    _make_key(folder)
    return SigningKey(folder)


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_epoch_is_not_in_the_file_name() -> None:
    assert PACKAGE.file_name == "demo_2.0-1+cuda9.0_amd64.deb"


def test_dpkg_reads_a_package(deb: Path) -> None:
    assert output("dpkg-deb", "--field", str(deb), "Version").strip() == PACKAGE.version
    assert "stand-in" in output("dpkg-deb", "--field", str(deb), "Description")
    listed = output("dpkg-deb", "--contents", str(deb))
    assert "rwxr-xr-x root/root" in listed
    assert "./usr/bin/link -> demo" in listed


def test_a_package_is_the_same_bytes_twice(deb: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.deb"
    write_deb(PACKAGE, again)
    assert again.read_bytes() == deb.read_bytes()


def test_a_copy_has_another_version_and_the_same_files(deb: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.deb"
    renamed(deb, {"Version": "9"}, copy)
    with open_tar(read_archive(copy), "control") as archive:
        stream = archive.extractfile("./control")
        assert stream
        fields = parse_control(stream.read().decode())
    assert (fields["Version"], fields["Depends"]) == ("9", "libc6")
    assert read_archive(copy)["data.tar.gz"] == read_archive(deb)["data.tar.gz"]


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"text")
    with pytest.raises(ValueError, match="no Debian package"):
        read_archive(tmp_path / "x")


def test_continuation_lines_belong_to_their_field() -> None:
    assert parse_control("A: 1\n two\nB: 3\n") == {"A": "1\n two", "B": "3"}


def test_a_flat_repository_is_signed_and_its_checksums_are_right(
    deb: Path, key: SigningKey
) -> None:
    folder = deb.parent
    write_flat(folder, "Demo", key)
    release = (folder / "Release").read_text()
    packages = (folder / "Packages").read_bytes()
    assert f" {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n" in release
    assert hashlib.sha256(deb.read_bytes()).hexdigest() in packages.decode()
    for signed in (["InRelease"], ["Release.gpg", "Release"]):
        files = [str(folder / name) for name in signed]
        output("gpgv", "--keyring", str(key.keyring), *files)
    assert len(key.fingerprint) == 40


def test_a_suite_has_its_packages_in_the_first_component(
    deb: Path, tmp_path: Path, key: SigningKey
) -> None:
    write_suite(tmp_path, "bionic-updates", ("main", "universe"), [deb], key)
    folder = tmp_path / "dists" / "bionic-updates"
    assert "Package: demo" in (folder / "main" / "binary-amd64" / "Packages").read_text()
    assert (folder / "universe" / "binary-amd64" / "Packages").read_text() == ""
    release = parse_control((folder / "Release").read_text())
    assert (release["Suite"], release["Codename"]) == ("bionic-updates", "bionic")
