"""The lock of a conda interpreter: read, checked, and resolved from a channel on loopback."""

import bz2
import json
from pathlib import Path

import pytest
from faulty_server import FaultyServer, Reply

from imgbuild.dockerfile.conda import (
    CondaEntry,
    conda_downloads,
    find_conda_problems,
    find_unlocked,
    read_conda_lock,
    resolve_conda,
)
from imgbuild.errors import CheckFailedError, InputError, MachineError
from imgbuild.matrix.model import CondaPython
from imgbuild.sites import Sites

SHA, OTHER = "a" * 64, "b" * 64
UP = "https://conda.example/main/linux-64"
PYTHON, XZ = f"{UP}/python-3.6.2-hca45abc_19.tar.bz2", f"{UP}/xz-5.2.3-h5e939de_4.tar.bz2"
FORGE = "https://forge.example/linux-64/tini-0.18.0-h14c3975_1001.tar.bz2"


def _python(*urls: str) -> CondaPython:
    return CondaPython.model_validate({"from": "conda", "packages": urls, "wheel_tag": "cp36"})


def _write(folder: Path, text: str) -> Path:
    path = folder / "conda-3.6.2.txt"
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


def _sites(server: FaultyServer) -> Sites:
    upstreams = {"main": UP, "forge": "https://forge.example/linux-64"}
    return Sites(upstreams, {"main": f"{server.url}/m", "forge": "http://127.0.0.1:9/"})


def test_a_lock_is_read(tmp_path: Path) -> None:
    path = _write(tmp_path, f"# a comment\n\n{SHA}  {PYTHON}  # seen in a file\nunlocked  {XZ}\n")
    assert list(read_conda_lock(path).values()) == [
        CondaEntry(PYTHON, SHA, "seen in a file"),
        CondaEntry(XZ),
    ]


@pytest.mark.parametrize(
    "line",
    [
        f"{SHA} {PYTHON}",
        f"{SHA[:-1]}  {PYTHON}",
        f"{SHA.upper()}  {PYTHON}",
        f"  {SHA}  {PYTHON}",
        f"{SHA}  {PYTHON} trailing",
        f"{SHA}  ftp://x/y",
        f"md5:{SHA}  {PYTHON}",
        SHA,
    ],
)
def test_a_line_that_is_no_entry_is_named(tmp_path: Path, line: str) -> None:
    path = _write(tmp_path, f"# header\n{line}\n")
    with pytest.raises(InputError, match=r"^conda-3\.6\.2\.txt:2: not a locked package"):
        read_conda_lock(path)


def test_a_package_twice_is_named(tmp_path: Path) -> None:
    path = _write(tmp_path, f"{SHA}  {PYTHON}\nunlocked  {PYTHON}\n")
    with pytest.raises(InputError, match=r"conda-3\.6\.2\.txt:2: .* is there twice"):
        read_conda_lock(path)


def test_every_package_of_the_matrix_is_there_and_no_other(tmp_path: Path) -> None:
    pythons = {"3.6.2": _python(PYTHON, XZ)}
    assert "No such file" in find_conda_problems(pythons, tmp_path)[0]
    _write(tmp_path, f"{SHA}  {PYTHON}\nunlocked  {FORGE}\n")
    assert find_conda_problems(pythons, tmp_path) == [
        f"conda-3.6.2.txt: {XZ} is missing",
        f"conda-3.6.2.txt: {FORGE} is not in the matrix",
    ]
    assert find_unlocked(pythons, tmp_path) == []
    _write(tmp_path, f"{SHA}  {PYTHON}\nunlocked  {XZ}\n")
    assert find_conda_problems(pythons, tmp_path) == []
    assert find_unlocked(pythons, tmp_path) == ["conda-3.6.2.txt: 1 of 2 packages are unlocked"]


def test_downloads_come_in_the_order_of_the_matrix(tmp_path: Path) -> None:
    _write(tmp_path, f"{OTHER}  {XZ}\n{SHA}  {PYTHON}\n")
    found = conda_downloads("3.6.2", _python(PYTHON, XZ), tmp_path)
    assert found == ((PYTHON, SHA), (XZ, OTHER))


@pytest.mark.parametrize(("text", "expected"), [("", "is not in it"), (None, "is unlocked")])
def test_what_is_not_locked_cannot_be_built_with(
    tmp_path: Path, text: str | None, expected: str
) -> None:
    _write(tmp_path, f"unlocked  {PYTHON}\n" if text is None else text)
    with pytest.raises(InputError, match=expected):
        conda_downloads("3.6.2", _python(PYTHON), tmp_path)


def test_hashes_come_from_the_channel(channel: FaultyServer, tmp_path: Path) -> None:
    python, sites = _python(PYTHON, XZ), _sites(channel)
    assert resolve_conda("3.6.2", python, tmp_path, sites, upgrade=False)
    entries = read_conda_lock(tmp_path / "conda-3.6.2.txt")
    assert [entry.sha256 for entry in entries.values()] == [SHA, OTHER]
    assert not resolve_conda("3.6.2", python, tmp_path, sites, upgrade=False)
    assert len(channel.asked) == 1, "what is locked is not asked for again"
    assert not resolve_conda("3.6.2", python, tmp_path, sites, upgrade=True)
    assert len(channel.asked) == 2


def test_a_channel_without_a_packed_index(server: FaultyServer, tmp_path: Path) -> None:
    server.give("/m/repodata.json", Reply(_repodata()))
    assert resolve_conda("3.6.2", _python(PYTHON), tmp_path, _sites(server), upgrade=False)


def test_a_hash_with_its_note_stays_and_an_unlocked_one_is_asked_for(
    channel: FaultyServer, tmp_path: Path
) -> None:
    path = _write(tmp_path, f"{OTHER}  {PYTHON}  # seen in a file\nunlocked  {XZ}\n")
    assert resolve_conda("3.6.2", _python(PYTHON, XZ), tmp_path, _sites(channel), upgrade=False)
    assert path.read_text().splitlines()[1:] == [
        f"{OTHER}  {PYTHON}  # seen in a file",
        f"{OTHER}  {XZ}",
    ]


def test_a_package_that_the_channel_lacks(channel: FaultyServer, tmp_path: Path) -> None:
    url = f"{UP}/python-3.6.2-hca45abc_99.tar.bz2"
    with pytest.raises(CheckFailedError) as caught:
        resolve_conda("3.6.2", _python(url), tmp_path, _sites(channel), upgrade=False)
    assert f"{UP} has no python-3.6.2-hca45abc_99.tar.bz2; near it are: python-3.6.2-hca45a" in str(
        caught.value
    )
    assert not list(tmp_path.iterdir())


def test_a_package_that_nobody_ever_had(channel: FaultyServer, tmp_path: Path) -> None:
    url = f"{UP}/nothing-1.0-0.tar.bz2"
    with pytest.raises(CheckFailedError, match="no other build of that package"):
        resolve_conda("3.6.2", _python(url), tmp_path, _sites(channel), upgrade=False)


@pytest.mark.parametrize("sha256", ["", "A" * 64, "abc"])
def test_an_entry_without_sha256(server: FaultyServer, tmp_path: Path, sha256: str) -> None:
    body = _repodata(**{"xz-5.2.3-h5e939de_4.tar.bz2": sha256})
    server.give("/m/repodata.json", Reply(body))
    with pytest.raises(CheckFailedError, match=r"gives no sha256 for xz-5\.2\.3"):
        resolve_conda("3.6.2", _python(XZ), tmp_path, _sites(server), upgrade=False)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(b"no bzip2"), "is not what a conda channel has there"),
        (Reply(b"", 404), r"repodata\.json answered 404"),
        (Reply(b"", 500), "it answered 500"),
    ],
)
def test_a_channel_that_cannot_be_read(
    server: FaultyServer, tmp_path: Path, reply: Reply, expected: str
) -> None:
    server.give("/m/repodata.json.bz2", reply)
    with pytest.raises(MachineError, match=expected) as caught:
        resolve_conda("3.6.2", _python(XZ), tmp_path, _sites(server), upgrade=False)
    assert "/m" in str(caught.value)


def test_a_channel_out_of_reach_costs_only_its_own_lines(
    channel: FaultyServer, tmp_path: Path
) -> None:
    python = _python(FORGE, PYTHON)
    path = tmp_path / "conda-3.6.2.txt"
    with pytest.raises(MachineError, match=r"127\.0\.0\.1:9/repodata"):
        resolve_conda("3.6.2", python, tmp_path, _sites(channel), upgrade=False)
    lines = [f"unlocked  {FORGE}", f"{SHA}  {PYTHON}"]
    assert path.read_text().splitlines()[1:] == lines
    _write(tmp_path, f"{OTHER}  {FORGE}\n")
    with pytest.raises(MachineError):
        resolve_conda("3.6.2", python, tmp_path, _sites(channel), upgrade=True)
    assert path.read_text().splitlines()[1:] == [f"{OTHER}  {FORGE}", f"{SHA}  {PYTHON}"]
