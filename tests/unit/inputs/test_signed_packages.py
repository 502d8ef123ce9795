"""Apt's lists and packages of a folder: only what the archive's key signed is admitted."""

from base64 import b64decode
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from imgbuild.core.files import ContentStore, sha256
from imgbuild.core.sources import Kind
from imgbuild.inputs.signed_packages import verify_packages
from support.fetched_folder import OTHER_KEY, SIGNED, START, stored

KEYS = [SIGNED / "keyring.gpg"]
PACKAGES = f"{START}main_binary-amd64_Packages"
DEB = "g++_4%3a12_amd64.deb"
FILES = {PACKAGES: (SIGNED / "Packages").read_bytes(), DEB: b"deb"}
INLINE = {f"{START}InRelease": (SIGNED / "InRelease").read_bytes(), **FILES}
DETACHED = {
    **{f"{START}{name}": (SIGNED / name).read_bytes() for name in ("Release", "Release.gpg")},
    **FILES,
}


def _verify(files: dict[str, bytes], folder: Path, keys: list[Path]) -> None:
    """Verify files that are listed with their own sha256, as who changes both would have it."""
    kinds = {name: Kind.APT_PACKAGE if name.endswith(".deb") else Kind.APT_LIST for name in files}
    items = [stored(content, folder, kinds[name], name) for name, content in files.items()]
    verify_packages(items, ContentStore(folder), keys)


@pytest.mark.parametrize("files", [INLINE, DETACHED], ids=["inline", "detached"])
def test_what_is_signed_is_admitted_and_no_change_of_it(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    _verify({**files, "tzdata_2026a-0+deb12u1_all.deb": b"tz"}, tmp_path, KEYS)
    _verify(files, tmp_path, [OTHER_KEY, *KEYS])
    with pytest.raises(InputError, match="gpgv refuses its signature"):
        _verify(files, tmp_path, [OTHER_KEY])
    for name, content in files.items():
        place = len(content) // 3  # in none of the lines that frame a signature
        changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        with pytest.raises(InputError, match="in the fetched folder: "):
            _verify({**files, name: changed}, tmp_path, KEYS)


def test_a_bad_signature_beside_a_good_one_is_refused(tmp_path: Path) -> None:
    name = f"{START}Release.gpg"
    good = b64decode(b"".join(DETACHED[name].splitlines()[2:-2]))
    bad = good[:-1] + bytes([good[-1] ^ 1])
    _verify({**DETACHED, name: good * 2}, tmp_path, KEYS)
    for both in (good + bad, bad + good):
        with pytest.raises(InputError, match="gpgv refuses its signature"):
            _verify({**DETACHED, name: both}, tmp_path, KEYS)


def test_signed_packages_refuse_a_forged_list(tmp_path: Path) -> None:
    forged = FILES[PACKAGES].replace(sha256(b"deb").encode(), sha256(b"bad").encode())
    with pytest.raises(InputError, match=r"_Packages in the fetched folder: no signed list"):
        _verify({**INLINE, PACKAGES: forged, DEB: b"bad"}, tmp_path, KEYS)
    release = INLINE[f"{START}InRelease"].replace(
        sha256(FILES[PACKAGES]).encode(), sha256(forged).encode()
    )
    with pytest.raises(InputError, match=r"_InRelease in .*: gpgv refuses its signature"):
        _verify({f"{START}InRelease": release, PACKAGES: forged, DEB: b"bad"}, tmp_path, KEYS)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"{START}InRelease", b"SHA256:\n"),
        (f"{START}InRelease", b"SHA256:\n x\n" + INLINE[f"{START}InRelease"]),
        (f"{START}InRelease", INLINE[f"{START}InRelease"] * 2),
        (f"{START}Release", b"SHA256:\n"),
        (f"{START}Release.gpg", DETACHED[f"{START}Release.gpg"]),
        (f"{START}main_binary-i386_Packages", FILES[PACKAGES]),
        ("tzdata_2026a-0+deb12u1_all.deb", b"deb"),
        ("g++_4%3a11_amd64.deb", b"deb"),
        ("evil_1_all.deb", b"evil"),
    ],
)
def test_what_no_signature_covers_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    """Unsigned text around a signed one, another list, and packages under each other's names."""
    with pytest.raises(InputError, match=r"changed it; then run `imgbuild build --fetch"):
        _verify({**INLINE, name: content}, tmp_path, KEYS)


@pytest.mark.parametrize("files", [INLINE, DETACHED], ids=["inline", "detached"])
def test_an_index_of_another_suite_is_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    """The archive's keys sign its older suites, too. A repository without suites has any name."""
    for admitted in (START, "archive.example_debian_dists_bookworm_", "nvidia.example_x86%5f64_"):
        _verify(_renamed(files, admitted), tmp_path, KEYS)
    with pytest.raises(InputError, match=r"trixie_.*Release in .*: it is the index of bookworm\."):
        _verify(_renamed(files, "archive.example_debian_dists_trixie_"), tmp_path, KEYS)


def _renamed(files: dict[str, bytes], start: str) -> dict[str, bytes]:
    return {name.replace(START, start): content for name, content in files.items()}
