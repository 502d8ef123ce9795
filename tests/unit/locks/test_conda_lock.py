"""The lock of a conda interpreter: read, checked, and resolved from a channel on loopback."""

import bz2
import json
import re
from pathlib import Path

import pytest

from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.settings import Settings
from imgbuild.locks import conda
from imgbuild.locks.conda import (
    check_conda_locks,
    conda_sources,
    find_unlocked,
    read_conda_lock,
    resolve_conda,
)
from imgbuild.matrix.components import CondaPython
from imgbuild.net.sites import Sites
from support.bombs import BZ2, memory_below
from support.faulty_server import FaultyServer, Reply

SHA, OTHER = "a" * 64, "b" * 64
UP = "https://conda.example/main/linux-64"
PYTHON, XZ = f"{UP}/python-3.6.2-hca45abc_19.tar.bz2", f"{UP}/xz-5.2.3-h5e939de_4.tar.bz2"
FORGE = "https://forge.example/linux-64/tini-0.18.0-h14c3975_1001.tar.bz2"
NAME = "conda-3.6.2.txt"


def _python(*urls: str) -> CondaPython:
    return CondaPython.model_validate({"from": "conda", "packages": urls, "wheel_tag": "cp36"})


def _write(folder: Path, text: str) -> Path:
    path = folder / NAME
    path.write_text(text)
    return path


def _repodata(**packages: str) -> bytes:
    entries = {
        "python-3.6.2-hca45abc_19.tar.bz2": {"name": "python", "sha256": SHA},
        "python-3.6.2-h02fb82a_12.tar.bz2": {"name": "python", "sha256": OTHER},
        "python-dateutil-2.6.1-py36_0.tar.bz2": {"name": "python-dateutil", "sha256": OTHER},
        **{name: {"sha256": sha256} for name, sha256 in packages.items()},
    }
    forge = {"xz-5.2.3-h5e939de_4.conda": {"sha256": OTHER}}
    document = {"packages": entries, "packages.conda": forge, "removed": ["xz-0-0.tar.bz2"]}
    return json.dumps(document).encode()


@pytest.fixture
def channel(server: FaultyServer) -> FaultyServer:
    packed = bz2.compress(_repodata(**{"xz-5.2.3-h5e939de_4.tar.bz2": OTHER}))
    server.give("/m/repodata.json.bz2", Reply(packed))
    return server


def _resolve(server: FaultyServer, folder: Path, *urls: str, upgrade: bool = False) -> str:
    """Write the lock; return which channels could not be read."""
    upstreams = {"main": UP, "forge": "https://forge.example/linux-64"}
    mirrors = {"main": f"{server.url}/m", "forge": "http://127.0.0.1:9/"}
    sites = Sites(upstreams, Settings.model_validate({"mirrors": mirrors}))
    text, faults = resolve_conda("3.6.2", _python(*urls), folder, sites, upgrade=upgrade)
    _write(folder, text)
    return " ".join(faults)


@pytest.mark.parametrize(
    "line",
    [
        *(f"{SHA[:-1]}  {PYTHON}", f"{SHA}  {PYTHON} trailing", f"{SHA}  ftp://x/y"),
        f"unlocked  {XZ}",  # it is listed twice
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    path = _write(tmp_path, f"{SHA}  {XZ}\n{line}\n")
    with pytest.raises(InputError, match=rf"^{NAME}:2: "):
        read_conda_lock(path)


def test_every_package_of_the_matrix_is_locked_and_no_other(tmp_path: Path) -> None:
    pythons = {"3.6.2": _python(PYTHON, XZ)}
    assert check_conda_locks(pythons, tmp_path) == [f"{NAME}: No such file or directory."]
    _write(tmp_path, f"{SHA}  {PYTHON}\nunlocked  {FORGE}\n")
    assert check_conda_locks(pythons, tmp_path) == [
        f"{NAME}: {XZ} is missing",
        f"{NAME}: {FORGE} is not in the matrix",
    ]
    _write(tmp_path, f"{SHA}  {PYTHON}\nunlocked  {XZ}\n")
    assert check_conda_locks(pythons, tmp_path) == []
    assert find_unlocked(pythons, tmp_path) == [f"{NAME}: 1 of 2 packages are unlocked"]


def test_an_unlocked_package_is_not_built_with(tmp_path: Path) -> None:
    _write(tmp_path, f"# A comment.\n\n{OTHER}  {XZ}\n{SHA}  {PYTHON}\n")
    sources = conda_sources("3.6.2", _python(PYTHON, XZ), tmp_path)
    pairs = [(source.url, source.sha256) for source in sources]
    assert pairs == [(PYTHON, SHA), (XZ, OTHER)], "in the order of the matrix"
    for text in ("", f"unlocked  {PYTHON}\n"):
        _write(tmp_path, text)
        with pytest.raises(InputError, match="is unlocked"):
            conda_sources("3.6.2", _python(PYTHON), tmp_path)


def test_hashes_come_from_the_channel(channel: FaultyServer, tmp_path: Path) -> None:
    """A hash that is known stays, with its note, and is not looked up again."""
    path = _write(tmp_path, f"{OTHER}  {PYTHON}  # seen in a file\nunlocked  {XZ}\n")
    lines = [f"{OTHER}  {PYTHON}  # seen in a file", f"{OTHER}  {XZ}"]
    for asked in (1, 1):
        assert not _resolve(channel, tmp_path, PYTHON, XZ)
        assert path.read_text().splitlines()[1:] == lines
        assert len(channel.asked) == asked
    assert not _resolve(channel, tmp_path, PYTHON, XZ, upgrade=True)
    assert path.read_text().splitlines()[1:] == [f"{SHA}  {PYTHON}", f"{OTHER}  {XZ}"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "python-3.6.2-hca45abc_99.tar.bz2",
            "has no python-3.6.2-hca45abc_99.*python-3.6.2-hca45a",
        ),
        ("nothing-1.0-0.tar.bz2", "has no nothing-1.0-0.*no other build"),
        ("tini-0.18.0-h14c3975_1001.tar.bz2", "has no sha256 for tini-0.18.0"),
    ],
)
def test_a_package_that_the_channel_lacks(
    server: FaultyServer, tmp_path: Path, name: str, said: str
) -> None:
    """The channel has no packed index."""
    body = _repodata(**{"tini-0.18.0-h14c3975_1001.tar.bz2": "abc"})
    server.give("/m/repodata.json", Reply(body))
    with pytest.raises(CheckFailedError, match=f"{UP} {said}"):
        _resolve(server, tmp_path, f"{UP}/{name}")
    assert not list(tmp_path.iterdir())
    assert not _resolve(server, tmp_path, PYTHON)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(b"no bzip2"), "repodata.json.bz2 cannot be decompressed"),
        (Reply(b"", 404), r"/m/repodata\.json answered 404"),
        (Reply(b"", 500), "/m.* it answered 500"),
    ],
    ids=["no index", "404", "500"],
)
def test_a_channel_that_cannot_be_read(
    server: FaultyServer, tmp_path: Path, reply: Reply, expected: str
) -> None:
    server.give("/m/repodata.json.bz2", reply)
    assert re.search(expected, _resolve(server, tmp_path, XZ))


def test_channel_that_unpacks_to_too_much(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conda, "_LIMIT", 1 << 20)
    server.give("/m/repodata.json.bz2", Reply(BZ2))
    with memory_below(16 << 20):
        said = _resolve(server, tmp_path, XZ)
    assert "unpacks to more than 1,048,576 bytes" in said


def test_an_unreachable_channel_leaves_only_its_packages(
    channel: FaultyServer, tmp_path: Path
) -> None:
    for before, kept in (("", "unlocked"), (f"{OTHER}  {FORGE}\n", OTHER)):
        path = _write(tmp_path, before)
        said = _resolve(channel, tmp_path, FORGE, PYTHON, upgrade=True)
        assert "127.0.0.1:9/repodata" in said
        assert path.read_text().splitlines()[1:] == [f"{kept}  {FORGE}", f"{SHA}  {PYTHON}"]
