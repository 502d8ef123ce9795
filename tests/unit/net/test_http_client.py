"""The HTTP client: what is tried again, what is refused, who gets a login."""

import gzip
import io
import socket
import threading
import zlib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from math import inf

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.net.addresses import is_loopback, redact, resolve_redirect, same_site
from imgbuild.net.http import HttpClient, RetryPolicy, TransientError, raise_transient
from imgbuild.net.sites import Sites
from support.bombs import UNPACKED, memory_below
from support.faulty_server import FaultyServer, Reply, dripping, faulty_server

QUICK = RetryPolicy(3, first_wait=0.0)


def test_a_fault_that_passes_is_logged(server: FaultyServer) -> None:
    url = server.give("/x", Reply(b"", 503), Reply(b"bo", announced=4), Reply(b"body"))
    lines: list[str] = []
    assert HttpClient(policy=QUICK, log=lines.append).get(url).body == b"body"
    for line, facts in zip(lines, (("503", "1 of 3"), ("cut off", "2 of 3")), strict=True):
        assert all(fact in line for fact in facts)
    assert Sites().get(f"{server.url}/none").status == 404
    server.give("/x", Reply(b"", 503))
    with pytest.raises(MachineError, match=r"503 \(3 tries\)"):
        Sites().get(url)


def test_https_is_not_left_for_http(monkeypatch: pytest.MonkeyPatch) -> None:
    def redirect(
        _: HTTPAdapter, request: requests.PreparedRequest, **options: object
    ) -> requests.Response:
        assert options["verify"] is True
        assert options["proxies"] == {"https": "http://proxy.example:3128"}
        response = requests.Response()
        response.raw = HTTPResponse(io.BytesIO())
        response.request, response.url, response.status_code = request, str(request.url), 302
        response.headers["Location"] = "http://x.example/y"
        return response

    monkeypatch.setattr(HTTPAdapter, "send", redirect)
    monkeypatch.setattr("requests.utils.getproxies", lambda: {"https": "http://proxy.example:3128"})
    with pytest.raises(MachineError, match=r"leads from https to http://x\.example/y"):
        HttpClient(policy=QUICK).get("https://x.example/y")


def test_answers_and_redirects_without_end_are_refused(server: FaultyServer) -> None:
    url = server.give("/x", Reply(b"x" * 3_000_000))
    with pytest.raises(MachineError, match="more than 1 MiB"):
        HttpClient(policy=QUICK).get(url, limit=1 << 20)
    url = server.give("/x", Reply(b"", 302, headers={"Location": "/x"}))
    with pytest.raises(MachineError, match="too many redirects"):
        HttpClient(policy=QUICK).get(url)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_answer_that_unpacks_to_too_much(server: FaultyServer, coding: str) -> None:
    """The limit counts what was unpacked, and no piece of the answer unpacks to more."""
    body = gzip.compress(bytes(UNPACKED)) if coding == "gzip" else zlib.compress(bytes(UNPACKED))
    url = server.give("/x", Reply(body, headers={"Content-Encoding": coding}))
    with memory_below(16 << 20), pytest.raises(MachineError, match="more than 1 MiB"):
        HttpClient(policy=QUICK).get(url, limit=1 << 20)


def test_authorization_stays_at_its_site_and_off_plain_http(server: FaultyServer) -> None:
    with faulty_server() as other:
        there = other.give("/f", Reply(b"x"))
        url = server.give("/f", Reply(b"", 302, headers={"Location": there}))
        assert HttpClient(policy=QUICK).ask("GET", url, authorization="Basic x").body == b"x"
        assert (server.asked[0].authorization, other.asked[0].authorization) == ("Basic x", None)
    with pytest.raises(CheckFailedError, match="plain http"):
        HttpClient(policy=QUICK).ask("GET", "http://x.example/y", authorization="Basic x")


def test_closing_ends_the_waiting() -> None:
    client = HttpClient(policy=RetryPolicy(5, 60.0))
    threading.Timer(0.1, client.close).start()

    def fail() -> None:
        raise TransientError("no", wait=60.0)

    with pytest.raises(MachineError, match=r"work failed: no \(1 try\)"):
        client.retry("work", fail)


@pytest.mark.parametrize(
    ("failed", "asked", "least", "most"),
    [(1, None, 0, 1), (3, None, 0, 4), (1, 7.0, 7, 7), (5, None, inf, inf), (1, 301.0, inf, inf)],
)
def test_waits_double_and_never_fall_below_what_was_asked(
    failed: int, asked: float | None, least: float, most: float
) -> None:
    assert least <= RetryPolicy(5, 1.0).wait(failed, asked) <= most
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    for value, at_least, at_most in ((later, 50, 60), ("12", 12, 12), ("soon", 0, 0)):
        with pytest.raises(TransientError) as caught:
            raise_transient(429, {"Retry-After": value})
        assert at_least <= (caught.value.wait or 0) <= at_most


@pytest.mark.parametrize("status", [408, 425, 429, 500, 501, 599])
def test_a_status_that_another_try_may_change(status: int) -> None:
    for other in (200, 400, 404, 407, 409, 424, 426, 428, 430, 499):
        raise_transient(other, {})
    with pytest.raises(TransientError, match=f"^it answered {status}: x$") as caught:
        raise_transient(status, {}, ": x")
    assert caught.value.wait is None


def test_addresses() -> None:
    assert redact("https://u:p@x.example/a?key=1#f") == "https://x.example/a"
    assert same_site("https://x.example/a", "https://x.example:443/b")
    assert not same_site("https://x.example/a", "http://x.example/a")
    assert resolve_redirect("https://x.example/a/b", "../c?d=1") == "https://x.example/c?d=1"
    assert (
        resolve_redirect("https://x.example/a", "https://u:p@y.example/b") == "https://y.example/b"
    )

    with pytest.raises(MachineError, match=r"^http://x\.example/a leads to ftp://y\.example/b,"):
        resolve_redirect("http://x.example/a", "ftp://y.example/b")
    for address in ("https://[x", "https://y.example:99999/", "//y.example:x/"):
        with pytest.raises(
            MachineError, match=r"^https://x\.example/a leads to an invalid address"
        ):
            resolve_redirect("https://x.example/a", address)


def test_this_machine_is_told_by_the_host_alone() -> None:
    assert all(map(is_loopback, ("127.0.0.1:5000", "localhost", "[::1]:5000")))
    others = ("127.0.0.1:x@evil.example", "[::1", "registry.example.org:5000", "")
    assert not any(map(is_loopback, others))


def test_a_server_that_is_not_there_or_hangs() -> None:
    with pytest.raises(TransientError, match=r"^no connection: Connection refused$"):
        HttpClient(policy=QUICK).ask("GET", "http://127.0.0.1:9/")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = HttpClient(policy=RetryPolicy(1, 0.0), seconds=(1.0, 0.2))
        with pytest.raises(MachineError, match="no answer in time"):
            client.get(f"http://127.0.0.1:{silent.getsockname()[1]}/")


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"X-Slow: ", "no headers within"),
        (b"Content-Length: 100000\r\n\r\n", "no whole answer within"),
        (b"Connection: close\r\n\r\n", "no whole answer within"),
        (b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Slow: ", "no whole answer within"),
        (b"Transfer-Encoding: chunked\r\n\r\n1;", "no whole answer within"),
        # A file name in a gzip header, which no byte of the content comes before.
        (
            b"Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x08\0\0\0\0\0\xff",
            "no whole answer within",
        ),
    ],
    ids=["header", "length", "close", "trailer", "extension", "gzip"],
)
def test_a_server_that_drips_is_left(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, said: str
) -> None:
    monkeypatch.setattr("imgbuild.net.http.HEADERS_SECONDS", 0.3)
    monkeypatch.setattr("imgbuild.net.http.ANSWER_SECONDS", 0.3)
    client = HttpClient(policy=RetryPolicy(1, 0.0), seconds=(10.0, 10.0))
    with dripping(b"HTTP/1.1 200 OK\r\n" + sent) as url, pytest.raises(MachineError, match=said):
        client.get(url)
