"""Downloads: each way in which a server or network can fail, and what is left afterwards."""

import os
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from imgbuild.core.errors import CheckFailedError, ImgbuildError, InputError, MachineError
from imgbuild.core.files import ContentStore, sha256
from imgbuild.core.parallel import background
from imgbuild.core.settings import Mirror, Settings
from imgbuild.core.sources import Source
from imgbuild.inputs.download import fetch_all, prepare_downloads, show_progress
from imgbuild.net.sites import Sites
from support.faulty_server import Asked, FaultyServer, Reply, dripping

BODY = bytes(range(256)) * 4000  # a megabyte: more than one chunk
OTHER = BODY[:-1] + b"!"
SHA = sha256(BODY)
PAGE = b"<!DOCTYPE html><html><head><title> Please\n log in </title></head></html>"
LOGIN = "Basic dTpz"  # u:s


def fetch(url: str, folder: Path, sites: Sites | None = None, size: int | None = None) -> Path:
    store, download = ContentStore(folder), Source("file.bin", url, SHA, size)
    fetch_all([download], store, sites or Sites(), show_progress())
    return store.path(SHA)


def context(downloads: Iterable[Source], cache: Path) -> Path:
    return prepare_downloads(downloads, cache, Sites(), show_progress())


def _left(store: Path) -> list[str]:
    """Return what is in the store, but for lock files."""
    found = [path for path in store.rglob("*") if path.is_file()]
    return sorted(path.name for path in found if not path.name.endswith(".lock"))


def _netrc(folder: Path, text: str = "machine 127.0.0.1 login u password s\n") -> str:
    path = folder / "netrc"
    path.write_text(text)
    return str(path)


def test_a_file_comes_once(server: FaultyServer, tmp_path: Path) -> None:
    """It is kept as sent, even if the answer says that it is packed."""
    url = server.give("/f", Reply(BODY, headers={"Content-Encoding": "gzip"}))
    path = fetch(url, tmp_path)
    assert path == ContentStore(tmp_path).path(SHA) == tmp_path / "sha256" / SHA[:2] / SHA
    assert path.read_bytes() == BODY
    assert fetch(url, tmp_path) == path
    assert server.asked == [Asked("/f", None, None)]
    assert _left(tmp_path) == [SHA]


@pytest.mark.parametrize(
    ("body", "size", "said"),
    [
        (PAGE, None, r"an HTML page \(“Please log in”\) instead"),
        (b"\xef\xbb\xbf\n<HTML>no title", None, "an HTML page instead"),
        (b"<html><title>" + b"x" * 200 + b"</title>", None, "an HTML page instead"),
        (OTHER, None, rf"{len(BODY)} bytes with sha256 {sha256(OTHER)}, .* {SHA}\."),
        (BODY * 20, 1000, r"sent \d{6} bytes with sha256"),
    ],
    ids=["page", "page without title", "page with a long title", "other", "without end"],
)
def test_other_content_is_refused(
    server: FaultyServer, tmp_path: Path, body: bytes, size: int | None, said: str
) -> None:
    """It is given up when it grows past its size, and nothing is kept."""
    url = server.give("/f", Reply(body))
    with pytest.raises(CheckFailedError, match=said) as caught:
        fetch(url, tmp_path, size=size)
    assert f"file.bin is not the expected file: {url} " in str(caught.value)
    assert (_left(tmp_path), len(server.asked)) == ([], 1)


CUT = Reply(BODY[:1000], announced=len(BODY), ranges=False)
ODD = Reply(BODY[7:], 206, headers={"Content-Range": f"bytes 7-{len(BODY) - 1}/{len(BODY)}"})


@pytest.mark.parametrize(
    ("reply", "said", "left"),
    [(CUT, "cut off", [f"{SHA}.part"]), (ODD, "sent a different range", [])],
)
def test_what_is_always_cut_short_or_another_piece(
    server: FaultyServer, tmp_path: Path, reply: Reply, said: str, left: list[str]
) -> None:
    url = server.give("/f", reply)
    with pytest.raises(MachineError, match=rf"{said}.* \(3 tries\)"):
        fetch(url, tmp_path)
    assert _left(tmp_path) == left


@pytest.mark.parametrize("then", [(Reply(BODY),), (Reply(BODY, ranges=False),), (ODD, Reply(BODY))])
def test_a_broken_connection_is_continued_or_begun_again(
    server: FaultyServer, tmp_path: Path, then: tuple[Reply, ...]
) -> None:
    """The last answer is a piece that was not asked for; it is not kept."""
    url = server.give("/f", Reply(BODY[:300_000], announced=len(BODY)), *then)
    assert fetch(url, tmp_path).read_bytes() == BODY
    assert [asked.range for asked in server.asked][:2] == [None, "bytes=300000-"]
    assert len(server.asked) == 1 + len(then)


@pytest.mark.parametrize(
    ("part", "ranges"),
    [
        (BODY, ["bytes=1024000-"]),  # killed just before it was renamed
        (BODY + b"more", ["bytes=1024004-", None]),
        (b"x" * len(BODY), ["bytes=1024000-", None]),
        (b"x" * 5000, ["bytes=5000-", None]),  # of another file: only the sha256 tells
        (b"", [None]),
    ],
)
def test_what_another_run_left_is_used_or_not(
    server: FaultyServer, tmp_path: Path, part: bytes, ranges: list[str | None]
) -> None:
    url = server.give("/f", Reply(BODY))
    path = ContentStore(tmp_path).path(SHA)
    path.parent.mkdir(parents=True)
    path.with_name(f"{SHA}.part").write_bytes(part)
    assert fetch(url, tmp_path).read_bytes() == BODY
    assert [asked.range for asked in server.asked] == ranges
    assert _left(tmp_path) == [SHA]


@pytest.mark.parametrize(
    ("status", "asks"), [(401, True), (403, True), (407, True), (404, False), (418, False)]
)
def test_a_refusal_is_not_asked_again(
    server: FaultyServer, tmp_path: Path, status: int, *, asks: bool
) -> None:
    url = server.give("/f", Reply(b"", status))
    with pytest.raises(MachineError, match=f"{url} answered {status} ") as caught:
        fetch(url, tmp_path)
    assert ("requires a login" in str(caught.value)) is asks
    assert (_left(tmp_path), len(server.asked)) == ([], 1)


def test_a_mirror_is_asked_with_the_login_of_the_netrc_file(
    server: FaultyServer, tmp_path: Path
) -> None:
    server.give("/mirror/sub/f", Reply(BODY, login=LOGIN))
    mirrors = {"up": Mirror(url=f"{server.url}/mirror")}
    settings = Settings(mirrors=mirrors, netrc=_netrc(tmp_path))
    sites = Sites({"up": "https://up.example/a/"}, settings)
    fetch("https://up.example/a/sub/f", tmp_path / "s", sites)
    assert server.asked[0].authorization == LOGIN


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("default login u password s\n", "requires a login"),
        ("machine 127.0.0.1 login u password wrong!\n", "refused the login in the netrc file"),
        ("machine\n", ":2:"),
        ("wrong! x\n", ":1:"),
    ],
)
def test_a_login_that_is_missing_or_wrong(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    """The user's own ~/.netrc is not read, and no part of a file is quoted."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", _netrc(tmp_path))
    (other := tmp_path / "other").mkdir()
    sites = Sites(settings=Settings(netrc=_netrc(other, text)))
    url = server.give("/f", Reply(BODY, login=LOGIN))
    with pytest.raises((InputError, MachineError), match=expected) as caught:
        fetch(url, tmp_path / "s", sites)
    assert "wrong!" not in str(caught.value)
    assert LOGIN not in {one.authorization for one in server.asked}


def test_what_another_process_fetches_is_waited_for(server: FaultyServer, tmp_path: Path) -> None:
    url, begun, done = server.give("/f", Reply(BODY)), threading.Event(), threading.Event()

    def make(part: Path) -> None:
        begun.set()
        done.wait(10)
        part.write_bytes(BODY)

    other = background(lambda: ContentStore(tmp_path).put(SHA, make))
    assert begun.wait(10)
    own = background(lambda: fetch(url, tmp_path))
    with pytest.raises(TimeoutError):
        own.result(0.2)
    done.set()
    assert own.result(10) == other.result(10)
    assert server.asked == []


def _download(server: FaultyServer, name: str, body: bytes | None = None) -> Source:
    content = body or name.encode() * 1000
    url = server.give(f"/{name}", Reply(content))
    return Source(name, url, sha256(content))


def test_many_files_come(
    server: FaultyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    downloads = [_download(server, f"f{number}") for number in range(10)]
    store = ContentStore(tmp_path)
    fetch_all([*downloads, downloads[0]], store, Sites(), show_progress())
    for file in downloads:
        assert store.path(file.sha256).read_bytes()[:2] == file.name.encode()
    lines = capsys.readouterr().err.splitlines()
    assert min(lines) == "fetched f0 (2.0 kB)"
    assert len(lines) == len(server.asked) == 10
    missing = Source("missing", f"{server.url}/missing", "0" * 64)
    more = [_download(server, f"more{number}") for number in range(50)]
    with pytest.raises(MachineError, match="missing cannot be fetched"):
        fetch_all([missing, *more], store, Sites(), show_progress())
    assert len(server.asked) < 60, "the first fault ends the rest"


def test_a_file_that_another_one_stopped_has_not_failed(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imgbuild.inputs.download._CHUNK", 1)
    missing = Source("missing", f"{server.url}/missing", "0" * 64)
    store, failed = ContentStore(tmp_path), dict[Source, ImgbuildError]()
    with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n") as url:
        slow = Source("slow", url, "1" * 64)
        with pytest.raises(MachineError, match="missing cannot be fetched") as caught:
            fetch_all([slow, missing], store, Sites(), show_progress(), failed)
    assert failed == {missing: caught.value}


def test_a_context_holds_the_files_by_name(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads = [_download(server, "a.tar"), _download(server, "b.tar")]
    folder = context(downloads, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["a.tar", "b.tar"]
    assert (folder / "a.tar").stat().st_nlink == 2
    with monkeypatch.context() as whole:
        whole.delattr("imgbuild.inputs.download.fetch_all")
        assert context(reversed(downloads), tmp_path) == folder
    assert len(server.asked) == 2
    assert context(downloads[:1], tmp_path) != folder
    again = Source("a.tar", "https://x.example/other.tar", downloads[0].sha256)
    assert context([downloads[0], again], tmp_path).is_dir()
    other = Source("a.tar", "https://x.example/a.tar", "0" * 64)
    with pytest.raises(InputError, match=r"name a\.tar and different content"):
        context([downloads[0], other], tmp_path)


@pytest.mark.usefixtures("_hasty")
def test_a_server_that_drips_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("imgbuild.inputs.download._CHUNK_SECONDS", 0.3)
    left = pytest.raises(MachineError, match="no whole answer within")
    with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n") as url, left:
        fetch(url, tmp_path)


@pytest.mark.parametrize("body", [b"a.tar" * 300, b"X" + b"a.tar" * 1000], ids=["short", "other"])
def test_a_damaged_file_is_told_and_fetched_again(
    server: FaultyServer, tmp_path: Path, body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """Truncated, or of the right size with other bytes and the old time; no other file is."""
    downloads = [_download(server, name) for name in ("a.tar", "b.tar")]
    stored = context(downloads, tmp_path) / "a.tar"
    whole, status = stored.read_bytes(), stored.stat()
    stored.write_bytes(body[: len(whole)])  # the store's file too: they are one
    os.utime(stored, (status.st_atime, status.st_mtime + 1))
    capsys.readouterr()
    assert (context(downloads, tmp_path) / "a.tar").read_bytes() == whole
    damaged, fetched = capsys.readouterr().err.splitlines()
    assert damaged.startswith("a.tar in the cache is damaged")
    assert fetched == "fetched a.tar (5.0 kB)"
