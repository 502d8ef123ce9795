"""Names of repositories, and how settings make a client of one."""

from pathlib import Path

import pytest

from imgbuild.errors import InputError, MachineError
from imgbuild.registry.repository import parse_repository
from imgbuild.registry.repository_client import connect
from imgbuild.settings import Settings, load_settings


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
            (text, r"--to: .* is not HOST\[:PORT\]/REPOSITORY")
            for text in ("", "ml/tensorflow", "x.org", "x.org:port/a", "https://x.org/a")
        ],
        *[
            (f"x.org/{path}", r"--to: .* is not HOST\[:PORT\]/REPOSITORY")
            for path in ("", "ML", "a:tag", "a//b", "a..b", "a___b", "-a", "a b", "a\n", "a" * 260)
        ],
        ("docker.io/ubuntu", "--to: 'docker.io/ubuntu' is not a Docker Hub"),
        ("docker.io/a/b/c", "write docker.io/USER/NAME"),
        ("index.docker.io/tf", "another name; write docker.io/USER/NAME"),
        ("127.0.0.1:99999/x", "has a port that cannot be; they go from 1 to 65535"),
        ("registry:0/x", "has a port that cannot be"),
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
    with pytest.raises(InputError, match=r"Give --from HOST\[:PORT\]/REPOSITORY, or set publish"):
        connect(None, Settings(), print, "--from")


def test_settings_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "imgbuild.local.yaml"
    for text, expected in {
        "repository: TF": r"1:14: .* is not HOST\[:PORT\]/REPOSITORY",
        "repository: 'x.org/y:1.0'": "without a tag",
        "attempts: 0": "attempts must be at least 1\n",
        "attempts: 21": "attempts must be at most 20\n",
        "attempts: many": "attempts must be a whole number\n",
        "first_wait: long": "first_wait must be a number\n",
        "password: x": "unknown key 'password'",
    }.items():
        path.write_text(f"publishing: {{{text}}}\n")
        with pytest.raises(InputError, match=expected):
            load_settings(path)
