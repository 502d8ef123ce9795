"""What becomes of errors of the connection, and of addresses that lead astray."""

import pytest
import requests
from urllib3.exceptions import IncompleteRead, ProtocolError

from imgbuild.errors import MachineError
from imgbuild.registry.exchange import Exchange, Question, _fault, moved, same_site, shown
from imgbuild.registry.patience import PassingError

URL = "https://user:secret@registry.example.org/v2/?key=secret"


@pytest.mark.parametrize(
    ("error", "kind", "expected"),
    [
        (
            requests.exceptions.SSLError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"),
            MachineError,
            "https://registry.example.org/v2/: its TLS certificate is not trusted here",
        ),
        (requests.exceptions.SSLError("EOF occurred"), PassingError, "its TLS broke off"),
        (ProtocolError("broken", IncompleteRead(3, 7)), PassingError, "its answer broke off"),
        (requests.ReadTimeout("x"), PassingError, "no answer in time"),
        (requests.ConnectTimeout("x"), PassingError, "no connection in time"),
        (requests.exceptions.ProxyError("x"), PassingError, "the proxy of this machine"),
    ],
)
def test_errors_of_the_connection(error: Exception, kind: type[Exception], expected: str) -> None:
    found = _fault(error, URL)
    assert type(found) is kind
    assert expected in str(found)
    assert "secret" not in str(found)


def test_a_ca_bundle_that_is_not_there() -> None:
    exchange = Exchange("/nowhere/ca.pem")
    with pytest.raises(MachineError, match=r"cannot be asked: .*/nowhere/ca\.pem"):
        exchange.ask(Question("GET", "https://127.0.0.1:9/v2/"))


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/v2/x", "https://registry.example.org/v2/x"),
        ("more", "https://registry.example.org/v2/more"),
        ("//store.example.org/x", "https://store.example.org/x"),
        ("https://u:p@store.example.org/x?y=z", "https://store.example.org/x?y=z"),
    ],
)
def test_addresses_that_are_followed(location: str, expected: str) -> None:
    assert moved("https://registry.example.org/v2/", location) == expected


@pytest.mark.parametrize("location", ["http://registry.example.org/v2/x", "file:///etc/passwd"])
def test_addresses_that_are_not_followed(location: str) -> None:
    with pytest.raises(MachineError, match="X-Forwarded-Proto"):
        moved("https://registry.example.org/v2/", location)


def test_sites() -> None:
    assert same_site("https://x.org/a", "https://x.org:443/b")
    assert not same_site("https://x.org/a", "http://x.org/a")
    assert not same_site("https://x.org/a", "https://x.org:5000/a")
    assert not same_site("https://x.org/a", "https://x.org.evil/a")
    assert shown(URL) == "https://registry.example.org/v2/"
