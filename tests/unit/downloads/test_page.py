"""Answers without a known hash."""

import io

import pytest
from faulty_server import FaultyServer, Reply

from imgbuild.downloads.page import read_page
from imgbuild.downloads.sites import Sites
from imgbuild.downloads.web import UnsafeRedirectError, _follow
from imgbuild.errors import MachineError


def test_an_answer_is_returned_whatever_its_status(server: FaultyServer) -> None:
    url = server.give("/x", Reply(b"body"))
    assert read_page(url, Sites()).body == b"body"
    assert read_page(f"{server.url}/none", Sites()).status == 404


def test_a_fault_that_passes(server: FaultyServer) -> None:
    url = server.give("/x", Reply(b"", 503), Reply(b"bo", announced=4), Reply(b"body"))
    assert read_page(url, Sites()).body == b"body"


def test_a_fault_that_does_not(server: FaultyServer) -> None:
    url = server.give("/x", Reply(b"", 503))
    with pytest.raises(MachineError, match=r"it answered 503 .*\(3 tries\)"):
        read_page(url, Sites())


@pytest.mark.usefixtures("_hasty")
def test_nobody_listens() -> None:
    with pytest.raises(MachineError, match=r"http://127\.0\.0\.1:9/x: no connection"):
        read_page("http://127.0.0.1:9/x", Sites())


def test_an_answer_without_end_is_refused(server: FaultyServer) -> None:
    url = server.give("/x", Reply(b"x" * 3_000_000))
    with pytest.raises(MachineError, match="more than 1 MiB"):
        read_page(url, Sites(), limit=1 << 20)


def test_https_is_not_left_for_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a hash, what comes over http could be anybody's."""
    from requests import Response, Session

    def moved(*_args: object, **_options: object) -> Response:
        response = Response()
        response.raw = io.BytesIO()
        response.status_code = 302
        response.headers["Location"] = "http://x.example/y"
        return response

    monkeypatch.setattr(Session, "get", moved)
    with Session() as session, pytest.raises(UnsafeRedirectError):
        _follow(session, "https://x.example/y", Sites(), {}, hash_known=False)
