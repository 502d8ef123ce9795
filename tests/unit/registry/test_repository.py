"""Names of repositories, and how settings make a client of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imgbuild.errors import InputError, MachineError
from imgbuild.registry.repository import parse_repository, select_repository
from imgbuild.registry.repository_client import connect
from imgbuild.settings import Settings, load_settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "host", "path"),
    [
        ("registry.example.org/ml/tensorflow", "registry.example.org", "ml/tensorflow"),
        ("127.0.0.1:5000/tf", "127.0.0.1:5000", "tf"),
        ("localhost/a/b/c", "localhost", "a/b/c"),
        ("registry:5000/a.b/c__d/e---f", "registry:5000", "a.b/c__d/e---f"),
    ],
)
def test_names(text: str, host: str, path: str) -> None:
    name = parse_repository(text, "--to")
    assert (name.host, name.path, name.registry, str(name)) == (host, path, host, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tensorflow",
        "ml/tensorflow",
        "registry.example.org",
        "registry.example.org/",
        "registry.example.org/ML",
        "registry.example.org/a:tag",
        "registry.example.org/a//b",
        "registry.example.org/a..b",
        "registry.example.org/a___b",
        "registry.example.org/-a",
        "registry.example.org:port/a",
        "https://registry.example.org/a",
        "registry.example.org/a b",
        "registry.example.org/a\n",
        "registry.example.org/" + "a" * 240,
    ],
)
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(InputError, match=r"--to: .* is not HOST\[:PORT\]/REPOSITORY"):
        parse_repository(text, "--to")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("docker.io/ubuntu", "--to: 'docker.io/ubuntu' is not a Docker Hub"),
        ("docker.io/a/b/c", "write docker.io/USER/NAME"),
        ("registry-1.docker.io/me/tf", "another name; write docker.io/USER/NAME"),
        ("index.docker.io/tf", "another name; write docker.io/USER/NAME"),
        ("127.0.0.1:99999/x", "has a port that cannot be; they go from 1 to 65535"),
        ("registry:0/x", "has a port that cannot be"),
    ],
)
def test_what_no_registry_can_be(text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        parse_repository(text, "--to")


@pytest.mark.parametrize("text", ["user:secret@registry.example.org/a", "https://u:secret@x.org/a"])
def test_a_login_in_a_name_is_not_shown(text: str) -> None:
    with pytest.raises(InputError, match="docker login HOST") as caught:
        parse_repository(text, "--to")
    assert "secret" not in str(caught.value)


def test_docker_hub_is_called_otherwise_than_its_registry() -> None:
    assert parse_repository("docker.io/me/tf", "--to").registry == "registry-1.docker.io"


def test_settings(tmp_path: Path) -> None:
    path = tmp_path / "imgbuild.local.yaml"
    path.write_text("publishing: {repository: '127.0.0.1:9/tf', attempts: 2, first_wait: 0.001}\n")
    settings = load_settings(path)
    assert select_repository(None, settings, "--to") == ("127.0.0.1:9/tf", "publishing.repository")
    assert select_repository("x.org/y", settings, "--to") == ("x.org/y", "--to")
    said: list[str] = []
    registry = connect("127.0.0.1:9/tf", settings, said.append)
    with pytest.raises(MachineError, match=r"127\.0\.0\.1:9/tf: .* \(2 tries\)"):
        registry.tags()
    assert len(said) == 1
    assert "\n" not in said[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("publishing: {repository: TF}\n", r"1:14: .* is not HOST\[:PORT\]/REPOSITORY"),
        ("publishing: {repository: docker.io/tf}\n", r"1:14: .* write docker.io/USER/NAME"),
        ("publishing: {repository: 'x.org/y:1.0'}\n", "without a tag"),
        ("publishing: {attempts: 0}\n", "greater than or equal to 1"),
        ("publishing: {first_wait: -1}\n", "greater than or equal to 0"),
        ("publishing: {password: x}\n", "unknown key 'password'"),
        ("publishing: {compression: zstd}\n", "compression is no longer an option"),
    ],
)
def test_settings_that_are_wrong(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "imgbuild.local.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=expected):
        load_settings(path)


def test_settings_that_earlier_versions_wrote(tmp_path: Path) -> None:
    path = tmp_path / "imgbuild.local.yaml"
    path.write_text("publishing: {compression: gzip, attempts: 2}\n")
    assert load_settings(path).publishing.attempts == 2


def test_no_repository() -> None:
    with pytest.raises(
        InputError, match=r"Give --from HOST\[:PORT\]/REPOSITORY, or set publishing"
    ):
        select_repository(None, Settings(), "--from")
