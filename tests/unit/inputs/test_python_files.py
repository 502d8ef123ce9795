"""Which file of each Python distribution is fetched. uv is a script that says what uv would."""

from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.core.settings import Settings
from imgbuild.inputs.upstream_files import python_items
from imgbuild.locks.lockfile import HEADER
from imgbuild.locks.requirements import index_environment
from imgbuild.matrix.images import Image
from imgbuild.net.sites import Sites
from support.fake_uv import write_fake_uv

HEAD = 'lock-version = "1.0"\ncreated-by = "uv"\nrequires-python = ">=3.6"\n'
DEBIAN, UBUNTU = "tf-2.2-cpu-debian", "tf-2.2-cpu-ubuntu"
ANY, OLD, NEW, SOURCE = ("1" * 64, "2" * 64, "3" * 64, "4" * 64)


def _file(name: str, sha256: str) -> str:
    return f'{{ url = "https://x.example/p/{name}", hashes = {{ sha256 = "{sha256}" }} }}'


def _package(name: str, version: str, source: str, *wheels: str) -> str:
    listed = f"\nwheels = [{', '.join(wheels)}]" if wheels else ""
    return f'[[packages]]\nname = "{name}"\nversion = "{version}"\nsdist = {source}{listed}\n'


@pytest.fixture
def image(images: dict[str, Image]) -> Image:
    return images[DEBIAN]


@pytest.fixture
def locks(tmp_path: Path, images: dict[str, Image]) -> Path:
    folder = tmp_path / "locks"
    folder.mkdir()
    header = f"{HEADER}\n# request: sha256:{'0' * 64}\n"
    hashes = " \\\n".join(f"    --hash=sha256:{sha}" for sha in (ANY, OLD, NEW, SOURCE))
    for image in (images[DEBIAN], images[UBUNTU]):
        (folder / image.lock_name).write_text(f"{header}h5py==2.10.0 \\\n{hashes}\n")
        (folder / image.build_lock_name).write_text(f"{header}wheel==0.37.1 \\\n{hashes}\n")
    return folder


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: Image) -> Callable[..., None]:
    """Make uv answer with these packages, by what it is asked for."""

    def give(h5py: str, horovod: str | None = None) -> None:
        assert image.horovod
        sha256 = horovod or image.horovod.sha256
        version = image.version_of("horovod")
        wheel = _file(f"horovod-{version}-py3-none-any.whl", ANY)
        source = _file(f"horovod-{version}.tar.gz", sha256)
        texts = {
            "h5py": h5py,
            "wheel": _package("wheel", "0.37.1", _file("wheel-0.37.1.tar.gz", ANY)),
            "horovod": _package("horovod", version, source, wheel),
        }
        for name, text in texts.items():
            (tmp_path / name).write_text(HEAD + text)
        script = write_fake_uv(
            tmp_path / "uv",
            "read -r line < files.in\n"
            f'echo "$*" | grep -o "manylinux[^ ]*" >> "{tmp_path}/asked"\n'
            f'exec cp "{tmp_path}/${{line%%=*}}" pylock.toml',
        )
        monkeypatch.setattr("uv.find_uv_bin", lambda: str(script))

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return give


PURE = "h5py-2.10.0-py2.py3-none-any.whl"
MANYLINUX1, MANYLINUX2010, GLIBC_2_28 = (
    f"h5py-2.10.0-cp36-cp36m-manylinux{name}_x86_64.whl" for name in ("1", "2010", "_2_28")
)


@pytest.mark.parametrize(
    ("name", "wheels", "expected"),
    [
        (DEBIAN, {}, "h5py-2.10.0.tar.gz"),
        (DEBIAN, {PURE: ANY}, PURE),
        (DEBIAN, {PURE: ANY, MANYLINUX1: OLD, MANYLINUX2010: NEW}, MANYLINUX2010),
        # Some releases have no wheel for glibc 2.17 any more.
        (DEBIAN, {MANYLINUX2010: OLD, GLIBC_2_28: NEW}, GLIBC_2_28),
        (UBUNTU, {MANYLINUX2010: OLD, GLIBC_2_28: NEW}, MANYLINUX2010),
    ],
    ids=["no wheel", "any", "newest", "new glibc", "old glibc"],
)
def test_the_best_file_for_the_glibc_of_the_image_is_taken(  # noqa: PLR0913, PLR0917 - fixtures
    images: dict[str, Image],
    locks: Path,
    answers: Callable[..., None],
    name: str,
    wheels: dict[str, str],
    expected: str,
) -> None:
    """As uv takes them in the build. Horovod is compiled from its source even if it has a wheel."""
    files = (_file(wheel, sha256) for wheel, sha256 in wheels.items())
    answers(_package("h5py", "2.10.0", _file("h5py-2.10.0.tar.gz", SOURCE), *files))
    names = [item.name for item in python_items(images[name], locks, Sites())]
    assert names == [expected, "wheel-0.37.1.tar.gz", "horovod-0.19.5.tar.gz"]
    asked = {DEBIAN: "manylinux_2_36", UBUNTU: "manylinux2014"}[name]
    assert {*(locks.parent / "asked").read_text().split()} == {asked}


@pytest.mark.parametrize(
    ("h5py", "horovod", "expected"),
    [
        (_file("h5py-2.10.0.tar.gz", "9" * 64), None, r"h5py-2\.10\.0\.tar\.gz .* not in tf-2"),
        (_file("h5py-2.10.0.tar.gz", SOURCE), "8" * 64, r"horovod.* not in matrix\.yaml"),
        (None, None, r"no file for Python 3\.6\.15: No wheel found .* package 'h5py'"),
    ],
)
def test_a_file_that_is_unknown_or_missing(  # noqa: PLR0913, PLR0917 - fixtures and cases
    image: Image,
    locks: Path,
    answers: Callable[..., None],
    h5py: str | None,
    horovod: str | None,
    expected: str,
) -> None:
    other = _file("h5py-2.10.0-cp27-cp27m-manylinux1_x86_64.whl", OLD)
    bare = f'[[packages]]\nname = "h5py"\nversion = "2.10.0"\nwheels = [{other}]\n'
    answers(_package("h5py", "2.10.0", h5py) if h5py else bare, horovod)
    with pytest.raises(CheckFailedError, match=expected):
        python_items(image, locks, Sites())
    uv = locks.parent / "uv"
    uv.write_text("#!/bin/sh\necho 'error sending request' >&2; exit 2\n")
    with pytest.raises(MachineError, match=rf"{image.lock_name}: error sending"):
        python_items(image, locks, Sites())


def test_uv_is_told_of_the_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a mirror the user's own index stands."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own.example/simple")
    monkeypatch.delenv("NETRC", raising=False)
    assert "NETRC" not in index_environment(Sites())
    (tmp_path / "netrc").write_text("machine m.example login me password secret\n")
    told = index_environment(Sites(settings=Settings(netrc=str(tmp_path / "netrc"))))
    assert told["NETRC"] == str(tmp_path / "netrc")
    assert told["UV_DEFAULT_INDEX"] == "https://own.example/simple"
