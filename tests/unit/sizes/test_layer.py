"""One layer: what counts as bytes, what is taken away, and whose a file is."""

import io
import json
import tarfile

import pytest
from hand_made import Member, folder, hard_link, symlink, tar

from imgbuild.sizes.layer import Entry, Kind, Layer, read_layer


def read(*members: Member) -> Layer:
    return read_layer(io.BytesIO(tar(*members)))


def owners(layer: Layer) -> dict[str, str]:
    return {entry.path: entry.owner for entry in layer.entries if entry.size}


def test_files_have_bytes_and_links_and_folders_have_none() -> None:
    layer = read(
        folder("./usr/"),
        ("./usr/a", b"12345"),
        hard_link("usr/b", "./usr/a"),
        symlink("usr/c", "a"),
        ("usr/empty", b""),
    )
    assert layer.entries == (
        Entry("usr", Kind.FOLDER),
        Entry("usr/a", Kind.FILE, 5),
        Entry("usr/b", Kind.HARD_LINK, 0, "usr/a"),
        Entry("usr/c", Kind.OTHER),
        Entry("usr/empty", Kind.FILE, 0),
    )
    assert layer.size == 5


def test_a_file_that_is_twice_in_a_layer_counts_once() -> None:
    assert read(("a", b"1"), ("./a", b"123")).size == 3


def test_a_sparse_file_has_the_size_that_it_shows() -> None:
    stream = io.BytesIO()
    info = tarfile.TarInfo("GNUSparseFile.0/big")
    info.size = 3
    info.pax_headers = {
        "GNU.sparse.map": "0,3",
        "GNU.sparse.size": "1000",
        "GNU.sparse.realsize": "1000",
        "GNU.sparse.name": "big",
    }
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(b"abc"))
    layer = read_layer(io.BytesIO(stream.getvalue()))
    assert [(entry.path, entry.size) for entry in layer.entries] == [("big", 1000)]


def test_whiteouts_are_no_files() -> None:
    layer = read(
        ("etc/.wh.passwd", b""), ("opt/.wh..wh..opq", b""), (".wh.top", b""), (".wh..wh.plnk", b"")
    )
    assert layer == Layer((), ("etc/passwd", "top"), ("opt",))


def test_whose_a_file_is_is_what_the_packages_say_of_themselves() -> None:
    site = "opt/python/lib/python3.6/site-packages"
    record = 'numpy/core.so,sha256=x,4\n"numpy/a,b.py",,\n../../../bin/f2py,,\nnumpy/core.py,,\n'
    conda = json.dumps({"name": "openssl", "files": ["lib/libssl.so"]})
    layer = read(
        ("var/lib/dpkg/info/libc6:amd64.list", b"/.\n/lib/x86_64/libc.so\n/usr/share/doc/c\n"),
        ("usr/lib/x86_64/libc.so", b"1"),
        ("usr/share/doc/c", b"1"),
        (f"{site}/Foo_Bar.numpy-1.18.5.dist-info/RECORD", record.encode()),
        (f"{site}/numpy/core.so", b"1234"),
        (f"{site}/numpy/a,b.py", b"1"),
        (f"{site}/numpy/__pycache__/core.cpython-36.pyc", b"1"),
        (f"{site}/numpy/__pycache__/core.cpython-36.opt-2.pyc", b"1"),
        (f"{site}/numpy/unlisted", b"1"),
        ("opt/python/bin/f2py", b"1"),
        ("opt/conda/conda-meta/openssl-1.0.2p-h14c.json", conda.encode()),
        ("opt/conda/lib/libssl.so", b"1"),
    )
    found = {path: owner for path, owner in owners(layer).items() if owner}
    assert found == {
        "usr/lib/x86_64/libc.so": "deb:libc6",
        "usr/share/doc/c": "deb:libc6",
        f"{site}/numpy/core.so": "python:foo-bar-numpy",
        f"{site}/numpy/a,b.py": "python:foo-bar-numpy",
        f"{site}/numpy/__pycache__/core.cpython-36.pyc": "python:foo-bar-numpy",
        f"{site}/numpy/__pycache__/core.cpython-36.opt-2.pyc": "python:foo-bar-numpy",
        "opt/python/bin/f2py": "python:foo-bar-numpy",
        "opt/conda/lib/libssl.so": "conda:openssl",
    }


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"files": 1}', b"\xff\xfe"])
def test_a_damaged_list_of_files_says_nothing(text: bytes) -> None:
    layer = read(("c/conda-meta/a-1-0.json", text), ("c/lib/a", b"1"))
    assert set(owners(layer).values()) == {""}


def test_what_is_no_layer_is_refused() -> None:
    with pytest.raises(tarfile.TarError):
        read_layer(io.BytesIO(b"no tar archive" * 100))
    with pytest.raises(tarfile.TarError):
        read_layer(io.BytesIO(tar(("a", b"1" * 5000))[:2000]))
