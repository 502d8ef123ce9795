"""Several files at once, and the build context made of them."""

import hashlib
import os
import sys
from pathlib import Path

import pytest
from faulty_server import FaultyServer, Reply

from imgbuild.downloads.context import downloads_context
from imgbuild.downloads.download import Download
from imgbuild.downloads.many import fetch_all
from imgbuild.downloads.progress import Lines, shown_progress
from imgbuild.downloads.sites import Sites
from imgbuild.errors import InputError, MachineError
from imgbuild.text import size_text


def _download(server: FaultyServer, name: str, body: bytes | None = None) -> Download:
    content = body or name.encode() * 1000
    url = server.give(f"/{name}", Reply(content))
    return Download(name, url, hashlib.sha256(content).hexdigest())


def test_many_files_come(server: FaultyServer, tmp_path: Path) -> None:
    downloads = [_download(server, f"f{number}") for number in range(10)]
    lines: list[str] = []
    stored = fetch_all([*downloads, downloads[0]], tmp_path, Sites(), Lines(lines.append))
    assert {path.read_bytes()[:2] for path in stored.values()} == {
        f"f{number}".encode() for number in range(10)
    }
    assert min(lines) == "fetched f0 (2.0 kB)"
    assert len(lines) == len(server.asked) == 10


def test_nothing_to_fetch(tmp_path: Path) -> None:
    assert fetch_all([], tmp_path, Sites()) == {}


def test_the_first_fault_is_told_and_ends_the_rest(server: FaultyServer, tmp_path: Path) -> None:
    missing = Download("missing", f"{server.url}/missing", "0" * 64)
    downloads = [_download(server, f"f{number}") for number in range(50)]
    with pytest.raises(MachineError, match="missing cannot be fetched"):
        fetch_all([missing, *downloads], tmp_path, Sites())


def test_a_context_holds_the_files_by_name(server: FaultyServer, tmp_path: Path) -> None:
    downloads = [_download(server, "a.tar"), _download(server, "b.tar")]
    folder = downloads_context(downloads, tmp_path, Sites())
    assert sorted(path.name for path in folder.iterdir()) == ["a.tar", "b.tar"]
    assert (folder / "a.tar").stat().st_nlink == 2
    assert downloads_context(reversed(downloads), tmp_path, Sites()) == folder
    assert len(server.asked) == 2
    assert downloads_context(downloads[:1], tmp_path, Sites()) != folder


def test_a_context_that_lost_a_file_is_made_again(server: FaultyServer, tmp_path: Path) -> None:
    downloads = [_download(server, "a.tar"), _download(server, "b.tar")]
    folder = downloads_context(downloads, tmp_path, Sites())
    (folder / "a.tar").unlink()
    assert (downloads_context(downloads, tmp_path, Sites()) / "a.tar").is_file()


@pytest.mark.parametrize("body", [b"a.tar" * 300, b"X" + b"a.tar" * 1000])
def test_a_damaged_file_is_told_and_fetched_again(
    server: FaultyServer, tmp_path: Path, body: bytes
) -> None:
    """Truncated, or of the right size with other bytes and the old time."""
    download = _download(server, "a.tar")
    folder = downloads_context([download], tmp_path, Sites())
    stored = folder / "a.tar"
    whole, status = stored.read_bytes(), stored.stat()
    stored.write_bytes(body[: len(whole)])  # the store's file too: they are one
    os.utime(stored, (status.st_atime, status.st_mtime + 1))
    lines: list[str] = []
    again = downloads_context([download], tmp_path, Sites(), Lines(lines.append))
    assert (again / "a.tar").read_bytes() == whole
    assert lines == [
        "a.tar in the cache was damaged (its sha256 is another): it is fetched again",
        "fetched a.tar (5.0 kB)",
    ]


def test_one_name_for_two_contents_is_refused(server: FaultyServer, tmp_path: Path) -> None:
    first = _download(server, "a.tar")
    second = Download("a.tar", "https://x.example/a.tar", "0" * 64)
    with pytest.raises(InputError, match=r"Two downloads are called a\.tar and differ"):
        downloads_context([first, second], tmp_path, Sites())
    again = Download("a.tar", "https://x.example/other.tar", first.sha256)
    assert downloads_context([first, again], tmp_path, Sites()).is_dir()


def test_progress_on_a_terminal_and_off_it(
    server: FaultyServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with shown_progress() as progress:
        fetch_all([_download(server, "plain")], tmp_path, Sites(), progress)
    assert capsys.readouterr().err == "fetched plain (5.0 kB)\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    cut = Reply(b"abc", announced=6)
    url = server.give("/bars", cut, Reply(b"abcdef"))
    download = Download("bars", url, hashlib.sha256(b"abcdef").hexdigest())
    with shown_progress() as progress:
        fetch_all([download], tmp_path, Sites(), progress)
    assert "fetched bars (6 bytes)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("size", "text"),
    [(999, "999 bytes"), (1500, "1.5 kB"), (2_000_000, "2.0 MB"), (3**21, "10.5 GB")],
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text
