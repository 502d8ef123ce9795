"""Layers are read out of saved archives of both image stores, and every kind of difference seen."""

import bz2
import gzip
import io
import tarfile
from hashlib import sha256
from typing import Any

import pytest

from imgbuild.maintain import layer_files
from imgbuild.maintain.layer_files import NOTHING, LayerFiles, file_differences, read_layers
from support.bombs import UNPACKED, memory_below
from support.saved_layers import STATUS, layer, pieces, saved

CAPABILITY = "SCHILY.xattr.security.capability"
TIME = "2026-11-01T00:00:00+00:00"


def unread(content: bytes) -> bool:
    """Return whether a layer is not read, as one that is no tar file."""
    return read_layers(pieces(saved([content]), 1 << 20), ()) == [None]


def read_one(content: bytes) -> LayerFiles:
    (found,) = read_layers(pieces(saved([content])), ())
    assert found
    return found


def differences(old: bytes, new: bytes) -> dict[str, Any]:
    found = file_differences(read_one(old), read_one(new))
    assert found is not None
    return dict(found)


@pytest.mark.parametrize("size", [1, 511, 1 << 22])
def test_an_archive_in_pieces_of_any_size(size: int) -> None:
    layers = [layer({"a": b"x" * 5000}), layer({})]
    first, second = read_layers(pieces(saved(layers), size), ())
    assert first
    files, _ = first
    assert files["a"] == {
        "type": "file",
        "content": sha256(b"x" * 5000).hexdigest(),
        "time": TIME,
        "mode": "644",
        "owner": "0:0",
    }
    assert second == NOTHING


def test_packed_layers_and_what_is_no_tar_file() -> None:
    """A containerd store saves layers as they were packed."""
    plain = layer({"a": b"text"})
    assert read_one(gzip.compress(plain)) == read_one(plain)
    (found,) = read_layers(pieces(saved([b"\x28\xb5\x2f\xfd" + bytes(2000)])), ())
    assert found is None
    assert file_differences(found, NOTHING) is None


def test_a_layer_that_is_the_same_is_not_read() -> None:
    same, other = layer({"a": b"1"}), layer({"b": b"2"})
    found = read_layers(pieces(saved([same, other])), [f"sha256:{sha256(same).hexdigest()}"])
    assert found == [None, read_one(other)]


LINK = {"type": tarfile.SYMTYPE, "linkname": "b"}


@pytest.mark.parametrize(
    ("changed", "field", "pair"),
    [
        ({"mtime": 1_793_491_201}, "time", (TIME, "2026-11-01T00:00:01+00:00")),
        ({"mode": 0o4755}, "mode", ("644", "4755")),
        ({"uid": 1000}, "owner", ("0:0", "1000:0")),
        ({"gid": 5}, "owner", ("0:0", "0:5")),
        ({"pax_headers": {CAPABILITY: "x"}}, CAPABILITY, (None, "x")),
        (LINK, "type", ("file", "symbolic link")),
        ({"type": tarfile.DIRTYPE}, "type", ("file", "folder")),
    ],
)
def test_each_kind_of_difference(
    changed: dict[str, Any], field: str, pair: tuple[str | None, str]
) -> None:
    files = {"etc/a": b""}
    found = differences(layer(files), layer(files, **changed))["etc/a"]
    assert found[field] == pair
    assert {*found} <= {field, "content"}


def test_contents_are_compared_and_files_of_one_layer_found() -> None:
    found = differences(layer({"a": b"1", "b": b"2"}), layer({"b": b"2", "a": b"1"}))
    assert found == {}
    found = differences(layer({"a": b"1", "gone": b""}), layer({"a": b"2", "new": b""}))
    assert found["a"] == {"content": (sha256(b"1").hexdigest(), sha256(b"2").hexdigest())}
    assert (found["gone"]["type"], found["new"]["type"]) == (("file", None), (None, "file"))
    moved = {**LINK, "linkname": "c"}
    found = differences(layer({"a": b""}, **LINK), layer({"a": b""}, **moved))
    assert found == {"a": {"content": ("b", "c")}}


@pytest.mark.parametrize("time", ["1e12", "nan", "inf", "-inf", "-1e20", "1e400"])
def test_read_layers_with_a_time_that_is_none(time: str) -> None:
    files, _ = read_one(layer({"a": b"x"}, pax_headers={"mtime": time}))
    assert files["a"]["time"] == str(float(time))


def test_read_layers_with_odd_numbers() -> None:
    """A header has numbers of 96 bits; extended ones are of any length."""
    headers = {"uid": "9" * 30, "gid": "-1"}
    files, _ = read_one(layer({"a": b"x"}, mode=-1, pax_headers=headers))
    assert files["a"]["owner"] == f"{'9' * 30}:-1"
    assert files["a"]["content"] == sha256(b"x").hexdigest()


def test_read_layers_reads_packages_of_dpkg() -> None:
    _, packages = read_one(layer({"var/lib/dpkg/status": STATUS.format(version="2.36").encode()}))
    assert packages == {"libc6": "2.36", "bash": "5.2.15-2"}


@pytest.mark.timeout(20)
def test_read_layers_reads_packages_in_linear_time() -> None:
    """A package without a version is none, and the next one is not searched for it."""
    status = b"Package: a\n x\n" * 300_000 + b"\nVersion: 1\n\nPackage: b\nVersion: 2\n"
    _, packages = read_one(layer({"var/lib/dpkg/status": status}))
    assert packages == {"b": "2"}


def test_read_layers_reads_no_packages_above_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    status = STATUS.format(version="2.36").encode()
    for limit, count in ((len(status), 2), (len(status) - 1, 0)):
        monkeypatch.setattr(layer_files, "_STATUS_LIMIT", limit)
        files, packages = read_one(layer({"var/lib/dpkg/status": status}))
        assert len(packages) == count
        assert files["var/lib/dpkg/status"]["content"] == sha256(status).hexdigest()


def member(kind: bytes, size: int = 0, content: bytes = b"") -> bytes:
    """Return a header that says it has ``size`` bytes, its content, and a file after it."""
    header = tarfile.TarInfo("a")
    header.type, header.size = kind, size
    padding = bytes(-len(content) % tarfile.BLOCKSIZE)
    return header.tobuf(tarfile.GNU_FORMAT) + content + padding + layer({"b": b""})


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_read_layers_limits_extended_headers(kind: bytes) -> None:
    """Python's tarfile reads them whole, and gzip makes them small."""
    content = gzip.compress(member(kind, UNPACKED, bytes(UNPACKED)))
    with memory_below(UNPACKED // 2):
        assert unread(content)


@pytest.mark.parametrize("size", [1 << 62, -1024])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE, b"V"])
def test_read_layers_refuses_sizes_that_no_file_has(kind: bytes, size: int) -> None:
    """Python's tarfile would seek through an exabyte behind the end of the layer."""
    assert unread(member(kind, size))


def test_read_layers_refuses_a_size_of_an_extended_header() -> None:
    assert unread(layer({"a": b"x"}, pax_headers={"size": str(1 << 62)}))
    assert unread(layer({"a": b"x"}, pax_headers={"size": "-4096"}))


def test_read_layers_refuses_sparse_files() -> None:
    """A few bytes would be read as an exabyte."""
    sparse = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 62)}
    assert unread(layer({"a": b"x"}, pax_headers=sparse))


def test_read_layers_unpacks_gzip_alone() -> None:
    """Python's tarfile unpacks each piece of bzip2 and LZMA whole."""
    packed = bz2.compress(layer({"a": bytes(UNPACKED)}))
    with memory_below(UNPACKED // 2):
        assert unread(packed)


@pytest.mark.parametrize("end", [2, 3, 9, 20, 60])
def test_read_layers_of_gzip_that_is_cut_off(end: int) -> None:
    assert unread(gzip.compress(layer({"a": b"text" * 9000, "b": b""}))[:end])


def test_read_layers_of_very_many_extended_headers() -> None:
    """Python's tarfile reads each one in a call of its own."""
    header = tarfile.TarInfo("a")
    header.type = tarfile.XHDTYPE
    assert unread(header.tobuf(tarfile.GNU_FORMAT) * 3000 + layer({"b": b""}))


def test_read_layers_keeps_no_extended_headers() -> None:
    """A header of each file can have 1 MiB."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        for number in range(20):
            member = tarfile.TarInfo(f"{number}")
            member.pax_headers = {"comment": "a" * 1_000_000}
            tar.addfile(member)
    with memory_below(12 << 20):
        files, _ = read_one(packed.getvalue())
        assert len(files) == 20
