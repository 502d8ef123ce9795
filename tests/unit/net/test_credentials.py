"""Logins as ``docker login`` leaves them: in config.json, in a store, in a helper of one host."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from imgbuild.core.errors import CheckFailedError
from imgbuild.net.authorization import docker_credentials
from imgbuild.net.sites import Credentials

HOST, SECRET = "registry.example.org:5000", "pass-word-1"
ENTRY = {"auth": b64encode(f"user:{SECRET}".encode()).decode()}
STORE = """#!/bin/sh
read -r host
case "$1 $host" in
"get known.example.org") echo '{"Username": "kept", "Secret": "pass-word-1"}' ;;
"get token.example.org") echo '{"Username": "<token>", "Secret": "identity-1"}' ;;
"get broken.example.org") echo 'pass-word-1 is what I choke on'; exit 3 ;;
*) echo 'credentials not found in native keychain'; exit 1 ;;
esac
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the client's configuration; a credential store "test" is on PATH."""
    store = tmp_path / "bin" / "docker-credential-test"
    store.parent.mkdir()
    store.write_text(STORE)
    store.chmod(0o755)
    monkeypatch.setenv("PATH", f"{store.parent}:/usr/bin:/bin")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    return tmp_path / "config.json"


def find(config: Path, document: dict[str, Any], host: str = HOST) -> Credentials | None:
    config.write_text(json.dumps(document))
    return docker_credentials(host)


def test_in_the_configuration(config: Path) -> None:
    assert docker_credentials(HOST) is None
    nothing: tuple[dict[str, Any], ...]
    nothing = ({}, {"auths": {"other.example.org": ENTRY}}, {"auths": {HOST: {}}})
    assert [find(config, document) for document in nothing] == [None] * 3
    own = {"auths": {HOST: ENTRY}}
    anothers_helper = {"credHelpers": {"known.example.org": "test"}, **own}
    by_address = {"auths": {f"https://{HOST}/v1/": ENTRY}}
    found = [find(config, document) for document in (own, anothers_helper, by_address)]
    assert found == [Credentials("user", SECRET)] * 3
    hub = {"auths": {"https://index.docker.io/v1/": ENTRY}}
    assert find(config, hub, "docker.io") == Credentials("user", SECRET)
    identity = {"auths": {HOST: {"auth": "x", "identitytoken": "identity-1"}}}
    assert find(config, identity) == Credentials(identity="identity-1")


@pytest.mark.parametrize("key", ["credsStore", "credHelpers"])
def test_in_a_store(config: Path, key: str) -> None:
    hosts = ("known.example.org", "token.example.org", "other.example.org")
    document = {key: "test" if key == "credsStore" else dict.fromkeys(hosts, "test")}
    found = [find(config, document, host) for host in hosts]
    assert found == [Credentials("kept", SECRET), Credentials(identity="identity-1"), None]


@pytest.mark.parametrize(
    ("document", "host"),
    [
        ({"credsStore": "test"}, "broken.example.org"),
        ({"credsStore": "absent"}, HOST),
        ({"auths": {HOST: {"auth": f"{SECRET}-is-no-base64"}}}, HOST),
        ({"auths": {HOST: {"auth": "bm8gY29sb24="}}}, HOST),
        ({"auths": {HOST: SECRET}}, HOST),
    ],
    ids=["fails", "absent", "no base64", "no colon", "no entry"],
)
def test_what_cannot_be_read(config: Path, document: dict[str, Any], host: str) -> None:
    with pytest.raises(CheckFailedError, match=f"docker login {host}") as caught:
        find(config, document, host)
    assert SECRET not in f"{caught.value} {caught.value.__cause__!r}"


def test_it_is_not_shown() -> None:
    made = Credentials("user", SECRET, "identity-1")
    assert repr(made) == str(made) == "Credentials()"
    assert Credentials().basic == ""
    assert made.basic == f"Basic {ENTRY['auth']}"
