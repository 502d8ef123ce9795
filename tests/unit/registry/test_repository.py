"""Names of repositories, and how settings make a client of one."""

import json
from pathlib import Path
from typing import Any

import pytest

from imgbuild.errors import InputError, MachineError
from imgbuild.http import TransientError
from imgbuild.registry.connection import RegistryConnection
from imgbuild.registry.repository import OCI_MANIFEST, Manifest, parse_repository
from imgbuild.registry.repository_client import connect
from imgbuild.settings import Settings, load_settings

FORM = r"--to: .* HOST\[:PORT\]/REPOSITORY"


@pytest.mark.parametrize(
    ("host", "path", "registry"),
    [
        ("registry.example.org", "ml/tensorflow", "registry.example.org"),
        ("127.0.0.1:5000", "tf", "127.0.0.1:5000"),
        ("registry:5000", "a.b/c__d/e---f", "registry:5000"),
        ("docker.io", "me/tf", "registry-1.docker.io"),
    ],
)
def test_names(host: str, path: str, registry: str) -> None:
    name = parse_repository(f"{host}/{path}", "--to")
    assert (name.host, name.path, name.registry) == (host, path, registry)
    assert str(name) == f"{host}/{path}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[
            (text, FORM)
            for text in ("", "ml/tensorflow", "x.org", "x.org:port/a", "https://x.org/a")
        ],
        *[
            (f"x.org/{path}", FORM)
            for path in ("", "ML", "a:tag", "a//b", "a..b", "a___b", "-a", "a b", "a\n", "a" * 260)
        ],
        *[(hub, "docker.io/USER/NAME") for hub in ("docker.io/ubuntu", "docker.io/a/b/c")],
        ("index.docker.io/tf", "docker.io/USER/NAME"),
        *[(text, "65535") for text in ("127.0.0.1:99999/x", "registry:0/x")],
        ("https://u:secret@x.org/a", "docker login HOST"),
    ],
)
def test_what_no_repository_can_be(text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        parse_repository(text, "--to")
    assert "secret" not in str(caught.value)


def test_settings(tmp_path: Path) -> None:
    path = tmp_path / "imgbuild.local.yaml"
    path.write_text("publishing: {repository: '127.0.0.1:9/tf', attempts: 2}\n")
    settings = load_settings(path)
    assert connect("x.org/y", settings, print, "--to").name == "x.org/y"
    said: list[str] = []
    registry = connect(None, settings, said.append, "--to")
    with pytest.raises(MachineError, match=r"127\.0\.0\.1:9/tf: .* \(2 tries\)"):
        registry.tags()
    assert len(said) == 1
    with pytest.raises(InputError, match=r"--from HOST\[:PORT\]/REPOSITORY"):
        connect(None, Settings(), print, "--from")


def test_settings_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "imgbuild.local.yaml"
    for text, expected in {
        "repository: TF": r"1:14: .* HOST\[:PORT\]/REPOSITORY",
        "repository: 'x.org/y:1.0'": "without a tag",
        "attempts: 0": "attempts ",
        "attempts: 21": "attempts ",
        "attempts: many": "attempts ",
        "first_wait: long": "first_wait ",
        "password: x": "unknown key 'password'",
    }.items():
        path.write_text(f"publishing: {{{text}}}\n")
        with pytest.raises(InputError, match=expected):
            load_settings(path)


class Deaf:
    """A client that finds nobody; ``asked`` are the addresses."""

    closed = False

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, _: str, url: str, *__: Any, **___: Any) -> None:
        self.asked.append(url)
        raise TransientError("wrong version number")


@pytest.mark.parametrize("host", ["registry.example.org", "192.0.2.1:5000", "registry:80"])
def test_no_other_machine_is_spoken_to_in_the_clear(host: str) -> None:
    client: Any = Deaf()
    connection = RegistryConnection(parse_repository(f"{host}/team/app", "--to"), client)
    with pytest.raises(TransientError):
        connection.ask("reading", "GET", "/tags/list")
    assert client.asked
    assert all(url.startswith("https://") for url in client.asked)


def test_an_engine_calls_an_image_by_its_manifest_or_its_configuration() -> None:
    content = json.dumps({"config": {"digest": "sha256:c"}, "layers": []}).encode()
    manifest = Manifest("sha256:m", OCI_MANIFEST, content)
    found = {one for one in ("sha256:c", "sha256:m", "sha256:x", "") if manifest.is_image(one)}
    assert found == {"sha256:c", "sha256:m"}
