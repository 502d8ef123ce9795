"""Logins and tokens: taken, refused, expired, and never shown or sent where they do not belong."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.core.parallel import in_parallel
from imgbuild.net.authorization import read_challenges
from imgbuild.net.repository import digest_of
from imgbuild.net.sites import Credentials
from support.registry_server import LOGIN, Fault, RegistryServer, opened, registry_server

TOKEN, OTHER = Fault(200, {}, b'{"token": "t1"}'), Fault(200, {}, b'{"access_token": "t2"}')
SECRETS = ("pass-word-1", LOGIN.basic.removeprefix("Basic "), "t1", "t2", "identity-1")


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as started:
        started.store.add_image("1.0")
        yield started


@pytest.fixture
def bearer(server: RegistryServer) -> RegistryServer:
    realm = f"http://{server.host}/token"
    server.challenge = f'Bearer realm="{realm}",service="reg, one",scope="repository:x:pull"'
    server.wanted = {"Bearer t1"}
    server.tokens = [TOKEN]
    return server


def tokens_asked(server: RegistryServer) -> list[dict[str, list[str]]]:
    asked = [one for one in server.asked if one.path.startswith("/token")]
    return [parse_qs(urlsplit(one.path).query) | parse_qs(one.body.decode()) for one in asked]


def refusal(server: RegistryServer, login: Credentials | None) -> str:
    said: list[str] = []
    with pytest.raises(CheckFailedError) as caught:
        opened(server.name, lambda _: login, said.append).head("1.0")
    text = f"{caught.value} {said} {caught.value.__cause__!r} {caught.value.__context__!r}"
    assert not [secret for secret in SECRETS if secret in text]
    return str(caught.value)


def test_a_name_and_password_also_one_that_is_changed_in_the_middle(
    server: RegistryServer,
) -> None:
    logins = {server.host: LOGIN}
    server.wanted = {LOGIN.basic}
    registry = opened(server.name, logins.get)
    assert registry.head("1.0")
    assert registry.put_blob(b"x")
    first, *others = [one.authorization for one in server.asked if "/team/" in one.path]
    assert (first, {*others}) == ("", {LOGIN.basic})
    logins[server.host] = Credentials("user", "pass-word-1-new")
    server.wanted = {logins[server.host].basic}
    assert registry.head("1.0")


def test_a_login_that_is_refused_is_sent_once(server: RegistryServer) -> None:
    server.wanted, told = {"Basic other"}, f"docker login {server.host}"
    for login, fact in ((LOGIN, "wrong, has expired"), (None, "this machine has none")):
        message = refusal(server, login)
        assert fact in message
        assert told in message
    server.challenge = "Negotiate"
    assert "wrong, has expired" in refusal(server, LOGIN)
    tried = [one.authorization for one in server.asked if "/team/" in one.path]
    assert tried == ["", LOGIN.basic, "", ""]


def test_a_token(bearer: RegistryServer) -> None:
    """One for each scope; the address of the token server may have a query."""
    bearer.challenge = bearer.challenge.replace("/token", "/token?account=a")
    registry = opened(bearer.name, lambda _: LOGIN)
    assert registry.head("1.0")
    assert registry.tags() == ("1.0",)
    registry.put_blob(b"x")
    digest = registry.head("1.0")
    assert digest
    registry.delete(digest)
    assert registry.head("1.0") is None
    service, scope = ["reg, one"], "repository:team/app:"
    assert tokens_asked(bearer) == [
        {"account": ["a"], "service": service, "scope": [f"{scope}{actions}"]}
        for actions in ("pull", "pull,push", "pull,push,delete")
    ]
    sent = {one.authorization for one in bearer.asked if one.path.startswith("/token")}
    assert sent == {LOGIN.basic}


def test_a_token_by_a_token_of_identity(bearer: RegistryServer) -> None:
    assert opened(bearer.name, lambda _: Credentials(identity="identity-1")).head("1.0")
    (asked,) = tokens_asked(bearer)
    assert asked["grant_type"] == ["refresh_token"]
    assert (asked["refresh_token"], asked["client_id"]) == (["identity-1"], ["imgbuild"])
    assert not [one for one in bearer.asked if "identity-1" in one.path + one.authorization]


def test_a_token_that_expired_is_renewed_once(bearer: RegistryServer) -> None:
    """Also in the middle of an upload."""
    registry = opened(bearer.name, lambda _: LOGIN)
    assert registry.head("1.0")
    bearer.wanted, bearer.tokens = {"Bearer t2"}, [OTHER]
    assert registry.head("1.0")
    bearer.fail("PUT /blobs", Fault(401, {"WWW-Authenticate": bearer.challenge}))
    bearer.wanted, bearer.tokens = {"Bearer t1", "Bearer t2"}, [TOKEN, OTHER]
    assert registry.put_blob(b"x") == digest_of(b"x")
    bearer.wanted = {"Bearer t3"}
    with pytest.raises(CheckFailedError, match="wrong, has expired, or lacks the permission"):
        registry.head("1.0")
    assert len(tokens_asked(bearer)) == 5


def test_many_at_once_ask_for_one_token(bearer: RegistryServer) -> None:
    registry = opened(bearer.name, lambda _: LOGIN)
    assert all(in_parallel(registry.head, ["1.0"] * 40, 8))
    assert len(tokens_asked(bearer)) == 1


@pytest.mark.parametrize(
    "answer",
    [
        *(Fault(401), Fault(403), Fault(200, {}, b"[]"), Fault(200, {}, b'{"token": "a\\nb"}')),
        Fault(200, {}, b"[" * 100_000),
    ],
    ids=["401", "403", "list", "line", "deep"],
)
@pytest.mark.usefixtures("no_collection")
def test_no_token_is_given(bearer: RegistryServer, answer: Fault) -> None:
    bearer.tokens = [answer]
    assert "wrong, has expired" in refusal(bearer, LOGIN)
    assert "requires a login" in refusal(bearer, None)


def test_faults_of_a_token_server(bearer: RegistryServer) -> None:
    bearer.tokens = [Fault(503), Fault(reset=True), TOKEN, Fault(503)]
    assert opened(bearer.name).head("1.0")
    assert not any(one.authorization for one in bearer.asked if one.path.startswith("/token"))
    with pytest.raises(MachineError, match="answered 503"):
        opened(bearer.name, lambda _: LOGIN).head("1.0")


def test_a_login_goes_to_a_token_server_with_tls_and_to_no_further_host(
    bearer: RegistryServer,
) -> None:
    with registry_server() as other:
        bearer.tokens = [Fault(307, {"Location": f"http://{other.host}/token"})]
        assert "wrong, has expired" in refusal(bearer, Credentials(identity="identity-1"))
        assert other.asked == []
    bearer.challenge = 'Bearer realm="http://token.example.org/x",service="s"'
    for login in (LOGIN, Credentials(identity="identity-1")):
        assert "plain http" in refusal(bearer, login)


def test_an_upload_to_another_host_gets_no_login(server: RegistryServer) -> None:
    server.wanted = {LOGIN.basic}
    with registry_server() as storage:
        there = f"http://user:secret@{storage.host}/v2/team/app/blobs/uploads/7"
        server.fail("POST", Fault(202, {"Location": there}))
        opened(server.name, lambda _: LOGIN).put_blob(b"x")
        assert [(one.method, one.authorization) for one in storage.asked] == [("PUT", "")]


@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
@pytest.mark.parametrize("known", [False, True])
def test_another_host_may_not_ask_for_a_login(
    bearer: RegistryServer, scheme: str, *, known: bool
) -> None:
    """Neither with the first request nor with one that has a token."""
    digest = next(iter(bearer.store.blobs))
    registry = opened(bearer.name, lambda _: LOGIN)
    if known:
        registry.blob(digest)
    else:
        bearer.wanted = set()
    with registry_server() as storage:
        storage.wanted, storage.tokens = {"Bearer t1"}, [TOKEN]
        storage.challenge = f'{scheme} realm="http://{storage.host}/token",service="s"'
        bearer.elsewhere = f"http://{storage.host}"
        with pytest.raises(CheckFailedError, match=r" http://.*, which asks for a login"):
            registry.blob(digest)
        assert [(one.method, one.authorization) for one in storage.asked] == [("GET", "")]
    assert len(tokens_asked(bearer)) == known


def test_challenges() -> None:
    for header, expected in {
        'Basic realm="a \\"b\\", c"': {"basic": {"realm": 'a "b", c'}},
        'Bearer realm="https://x.org/y?x=1",scope="a:b:c,d"': {
            "bearer": {"realm": "https://x.org/y?x=1", "scope": "a:b:c,d"}
        },
        'basic Realm=plain , BEARER realm = "x", error="invalid_token"': {
            "basic": {"realm": "plain"},
            "bearer": {"realm": "x", "error": "invalid_token"},
        },
    }.items():
        assert read_challenges(header) == expected
