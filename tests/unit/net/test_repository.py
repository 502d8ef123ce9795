"""Names of repositories, and how settings make a client of one."""

import json
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.files import parse_strict_json
from imgbuild.core.settings import Settings, load_settings
from imgbuild.net.http import HttpClient, TransientError
from imgbuild.net.repository import (
    DamagedError,
    Manifest,
    json_object,
    parse_repository,
    split_reference,
)
from imgbuild.net.repository_client import connect
from support.registry_server import opened


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("registry.example.org", "ml/tensorflow"),
        ("127.0.0.1:5000", "tf"),
        ("registry:5000", "a.b/c__d/e---f"),
        ("docker.io", "me/tf"),
    ],
)
def test_names(host: str, path: str) -> None:
    name = parse_repository(f"{host}/{path}", "--to")
    assert (name.host, name.path, str(name)) == (host, path, f"{host}/{path}")
    assert name.registry == ("registry-1.docker.io" if host == "docker.io" else host)


@pytest.mark.parametrize(
    "text",
    [
        *("", "ml/tensorflow", "x.org", "x.org:port/a", "127.0.0.1:99999/x", "registry:0/x"),
        *("https://x.org/a", "https://u:secret@x.org/a", "x.org/", "x.org/ML", "x.org/a:tag"),
        *("x.org/a//b", "x.org/a..b", "x.org/a___b", "x.org/-a", "x.org/a b", "x.org/a\n"),
        *(f"x.org/{'a' * 260}", "docker.io/ubuntu", "docker.io/a/b/c", "index.docker.io/tf"),
    ],
)
def test_what_no_repository_can_be(text: str) -> None:
    with pytest.raises(InputError, match=r"^--to: ") as caught:
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("repository: TF", r"1:14: .* HOST\[:PORT\]/REPOSITORY"),
        ("repository: 'x.org/y:1.0'", "without a tag"),
        *((f"attempts: {wrong}", "attempts ") for wrong in ("0", "21", "many")),
        ("first_wait: long", "first_wait "),
        ("password: x", "unknown key 'password'"),
    ],
)
def test_settings_that_are_wrong(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "imgbuild.local.yaml"
    path.write_text(f"publishing: {{{text}}}\n")
    with pytest.raises(InputError, match=expected):
        load_settings(path)


@pytest.mark.parametrize("host", ["registry.example.org", "192.0.2.1:5000", "registry:80"])
def test_no_other_machine_is_spoken_to_in_the_clear(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def find_nobody(_: HttpClient, __: str, url: str, *___: object, **____: object) -> None:
        asked.append(url)
        raise TransientError("wrong version number")

    monkeypatch.setattr(HttpClient, "ask", find_nobody)
    with pytest.raises(MachineError):
        opened(f"{host}/team/app").tags()
    assert asked
    assert all(url.startswith("https://") for url in asked)


@pytest.mark.parametrize("size", ["-1", '"1"', "true", "1.5", "1" + 400 * "0", "Infinity", "null"])
def test_a_size_that_cannot_be_is_refused(size: str) -> None:
    """Nor has a size what is no single image."""
    whole = f'{{"config": {{"size": 1}}, "layers": [{{"size": {size}}}]}}'
    for content in (whole, "{}", '{"config": {"size": 1}}', '{"layers": []}'):
        with pytest.raises(DamagedError, match="sha256:1"):
            Manifest("sha256:1", "", content.encode()).sizes()


CONFIG = f"sha256:{'a' * 64}"
IMAGE = f'"schemaVersion": 2, "config": {{"digest": "{CONFIG}"}}, "layers": []'


@pytest.mark.parametrize(
    "content",
    [
        f'{{{IMAGE}, "Config": {{"digest": "sha256:b"}}}}',
        f'{{{IMAGE}, "config": {{"digest": "sha256:b"}}}}',
        f'{{{IMAGE}, "layer\u017f": []}}',  # Go folds the long s to s
        '{"schemaVersion": 2, "Config": {"digest": "sha256:b"}, "layers": []}',
        '{"config": {"digest": "sha256:a", "Digest": "sha256:b"}, "layers": []}',
        '{"config": {"Digest": "sha256:b"}, "layers": []}',
        '{"config": {}, "layers": [{"digest": "sha256:a", "DIGEST": "sha256:b"}]}',
        '{"config": {}, "layers": [], "manifests": []}',
        '{"config": {"digest": "../../a"}, "layers": []}',
        '{"manifests": [{"digest": "sha256:a", "extra": 1}]}',
        '{"config": {}, "layers": {}}',
        f'{{{IMAGE}, "signatures": []}}',
        f'{{{IMAGE}, "mediaType": "an index"}}',
    ],
)
def test_manifest_refuses_ambiguity(content: str) -> None:
    manifest = Manifest("sha256:0", "a manifest", content.encode())
    with pytest.raises(DamagedError, match="sha256:0"):
        manifest.is_image(CONFIG)


def test_manifest_accepts_what_tools_write() -> None:
    described = {
        "mediaType": "x",
        "digest": "sha256:a",
        "size": 1,
        "annotations": {"a": "", "b": ""},
    }
    platform = {"os": "linux", "architecture": "amd64", "os.version": "1"}
    documents = [
        {"schemaVersion": 2, "config": described, "layers": [{**described, "urls": []}]},
        {"schemaVersion": 2, "manifests": [{**described, "platform": platform}]},
        {"config": described, "layers": [], "artifactType": "x", "subject": described},
    ]
    for document in documents:
        assert Manifest("", "", json.dumps(document).encode()).document() == document


def test_json_of_a_registry_has_distinct_keys() -> None:
    kelvin = b'{"a": [{"k": 1, "\xe2\x84\xaa": 2}]}'  # the sign for kelvin, which folds to k
    for content in (b'{"a": {"Key": 1, "key": 2}}', kelvin, b'{"a": NaN}'):
        with pytest.raises(DamagedError):
            json_object(content, "a record")
    assert json_object(b'{"a": {"key": 1}, "b": {"Key": 2}}', "a record")["a"] == {"key": 1}


def test_manifest_needs_descriptors() -> None:
    for config in ('"sha256:a"', "[]", "null"):
        manifest = Manifest("sha256:0", "", f'{{"config": {config}, "layers": []}}'.encode())
        assert manifest.config_digest == ""
    with pytest.raises(DamagedError, match="not a JSON object"):
        json_object(b'["config"]', "The manifest")


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("r.org:5000/ml/tf", ("r.org:5000/ml/tf", "", "")),
        ("r.org:5000/ml/tf:1", ("r.org:5000/ml/tf", "1", "")),
        (f"r.org/tf:1@{CONFIG}", ("r.org/tf", "1", CONFIG)),
        (f"r.org/tf@{CONFIG}", ("r.org/tf", "", CONFIG)),
    ],
)
def test_split_reference_parts(reference: str, parts: tuple[str, str, str]) -> None:
    assert split_reference(reference) == parts


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 101 + b"]" * 101,
        b'{"a": ' * 500 + b"1" + b"}" * 500,
        b'{"a\\ud800": 1, "a\\ud801": 2}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": "\xed\xa0\x80"}',
        b'{"a": 1e999}',
    ],
    ids=["list", "object", "halves", "utf-16", "half", "number"],
)
def test_json_that_go_reads_in_another_way(content: bytes) -> None:
    """Or that is nested so deeply that copying or printing it would fail."""
    with pytest.raises(ValueError, match=r"\w"):
        parse_strict_json(content)
    assert parse_strict_json(b"[" * 100 + b"]" * 100)
