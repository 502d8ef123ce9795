"""The server: files, parts of files, nothing else, and a memory of what was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import requests

from standin.server import StandInServer, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandInServer]:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a+b.txt").write_bytes(b"0123456789")
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "site").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "secret").write_bytes(b"x")
    with serve(tmp_path) as started:
        yield started


def get(server: StandInServer, path: str, **headers: str) -> requests.Response:
    return requests.get(f"{server.url}/{path}", headers=headers, timeout=10)


def test_a_file_behind_a_link_is_served(server: StandInServer) -> None:
    answer = get(server, "site/a%2Bb.txt")
    assert (answer.status_code, answer.content) == (200, b"0123456789")
    assert answer.headers["Content-Length"] == "10"


@pytest.mark.parametrize(
    ("asked", "content", "said"),
    [
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
    ],
)
def test_a_part_of_a_file(server: StandInServer, asked: str, content: bytes, said: str) -> None:
    answer = get(server, "site/a+b.txt", Range=asked)
    assert (answer.status_code, answer.content) == (206, content)
    assert answer.headers["Content-Range"] == said


@pytest.mark.parametrize("path", ["site", "site/none", "%2e%2e/secret", ""])
def test_what_is_not_there(server: StandInServer, path: str) -> None:
    assert get(server, path).status_code == 404


def test_nothing_is_sent_that_is_known_already(server: StandInServer) -> None:
    when = get(server, "site/a+b.txt").headers["Last-Modified"]
    answer = get(server, "site/a+b.txt", **{"If-Modified-Since": when})
    assert (answer.status_code, answer.content) == (304, b"")


def test_head_has_no_body(server: StandInServer) -> None:
    answer = requests.head(f"{server.url}/site/a+b.txt", timeout=10)
    assert (answer.status_code, answer.content) == (200, b"")


def test_requests_are_remembered(server: StandInServer, tmp_path: Path) -> None:
    get(server, "site/a+b.txt")
    get(server, "none")
    assert server.paths() == {"/site/a+b.txt"}
    assert [one.status for one in server.asked] == [200, 404]
    assert (tmp_path / "access.log").read_text() == "GET /site/a+b.txt 200\nGET /none 404\n"
