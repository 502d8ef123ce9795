"""Where apt finds Debian, in both of its languages."""

from pathlib import Path

import pytest

from imgbuild.doctor.apt_sources import (
    AptSource,
    find_debian_source,
    parse_deb822,
    parse_one_line,
)

DEB822 = """\
# Debian
Types: deb deb-src
URIs: http://mirror.example/debian
# a comment inside
Suites: bookworm
 bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb-src
URIs: http://sources.example/debian
Suites: bookworm
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
"""
MAIN = AptSource(
    ("http://mirror.example/debian",),
    ("bookworm", "bookworm-updates"),
    ("main", "contrib"),
    "/usr/share/keyrings/debian-archive-keyring.gpg",
)


def write(apt: Path, name: str, text: str) -> None:
    (apt / "sources.list.d").mkdir(parents=True, exist_ok=True)
    (apt / "sources.list.d" / name).write_text(text)


def test_deb822() -> None:
    assert parse_deb822(DEB822) == [MAIN]


def test_deb822_with_a_key_inside() -> None:
    key = "Types: deb\nURIs: http://a.example\nSuites: x\nSigned-By:\n -----BEGIN\n .\n -----END\n"
    assert parse_deb822(key)[0].signed_by == "\n -----BEGIN\n .\n -----END"


def test_one_line() -> None:
    text = """
    # deb http://off.example/debian bookworm main
    deb-src http://mirror.example/debian bookworm main
    deb cdrom:[Debian 12]/ bookworm main
    deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib # mine
    deb http://flat.example/ ./
    """
    mirror = ("http://mirror.example/debian",)
    assert parse_one_line(text) == [
        AptSource(mirror, ("bookworm",), ("main", "contrib"), "/k.gpg"),
        AptSource(("http://flat.example/",), ("./",), ()),
    ]


@pytest.mark.parametrize("name", ["a-third.list", "z-third.list"])
def test_debians_own_source_wins_over_a_third_partys(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, "deb http://third.example/apt bookworm main\n")
    write(tmp_path, "debian.sources", DEB822)
    assert find_debian_source("bookworm", tmp_path) == MAIN


def test_a_source_without_keys_gets_debians(tmp_path: Path) -> None:
    keyring = tmp_path / "debian.gpg"
    keyring.touch()
    (tmp_path / "sources.list").write_text("deb http://mirror.example/debian bookworm main\n")
    found = find_debian_source("bookworm", tmp_path, keyring)
    assert found is not None
    assert found.signed_by == str(keyring)


def test_no_source_of_this_release(tmp_path: Path) -> None:
    write(tmp_path, "debian.sources", DEB822)
    assert find_debian_source("trixie", tmp_path) is None


def test_another_suite_of_the_same_archive() -> None:
    text = MAIN.at("sid").as_deb822(outlives_validity=True)
    assert parse_deb822(text) == [AptSource(MAIN.uris, ("sid",), ("main",), MAIN.signed_by)]
    assert "Check-Valid-Until: no" in text
    assert "Check-Valid-Until" not in MAIN.as_deb822()
