"""Settings of a file and of the command line, the sites they name, and no secret in a message."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.project import Project, SettingsOptions
from imgbuild.core.settings import Mirror, Settings, load_settings
from imgbuild.net.sites import Credentials, Sites
from support.project_copy import NO_ENGINE, ROOT, invoke


def written(folder: Path, text: str) -> Path:
    """Return a file of settings with this text."""
    path = folder / "imgbuild.local.yaml"
    path.write_text(text)
    return path


def test_only_a_file_that_is_named_must_exist(tmp_path: Path) -> None:
    """But for `doctor --write`, which writes it."""
    absent = tmp_path / "absent.yaml"
    assert Project(tmp_path).settings == Settings()
    named = Project(tmp_path, SettingsOptions(absent))
    with pytest.raises(InputError, match=f"--settings {absent}: no such file"):
        named.settings  # noqa: B018 - a property
    assert named.read_settings() == Settings()


@pytest.mark.parametrize("by_variable", [False, True])
def test_settings_options_reach_a_command(tmp_path: Path, by_variable: bool) -> None:
    """Blanks separate the mirrors in the variable; the environment stays as it was."""
    path = written(tmp_path, "mirrors: {no-c: http://m/}\n")
    words = ["--settings", str(path), "--mirror", "no-a=http://m/", "--mirror", "no-b=http://m/"]
    variables = {
        "IMGBUILD_SETTINGS": str(path),
        "IMGBUILD_MIRRORS": " no-a=http://m/  no-b=http://m/",
    }
    env = {**NO_ENGINE, "IMGBUILD_PROJECT": str(ROOT), **(variables if by_variable else {})}
    before = {**os.environ}
    result = invoke(*(() if by_variable else words), "matrix", env=env)
    assert isinstance(result.exception, InputError)
    assert "mirrors: the matrix has no no-a, no-b, no-c" in str(result.exception)
    assert {**os.environ} == before


@pytest.mark.timeout(10)
def test_a_device_without_end_is_refused() -> None:
    with pytest.raises(InputError, match="/dev/zero: "):
        load_settings(Path("/dev/zero"))
    with pytest.raises(InputError, match="netrc /dev/zero: "):
        Sites({}, Settings(netrc="/dev/zero")).login("https://mirror.example.org/")


@pytest.mark.timeout(10)
def test_a_long_version_takes_no_quadratic_time() -> None:
    note = {"note": "a test", "versions": {"git": "1" + ".1" * 50_000 + "!"}}
    with pytest.raises(ValidationError, match="versions"):
        Settings.model_validate({"standin": note})


@pytest.mark.parametrize(
    "word",
    [
        *("ubuntu", "=http://m/", "ubuntu=ftp://m/", "ubuntu=http://m/$(x)"),
        *("ubuntu=https://u:secret@m/", "https://u:secret@m/", "https://u:secret@m/=x"),
    ],
)
def test_what_is_no_mirror_is_refused_and_no_login_shown(tmp_path: Path, word: str) -> None:
    with pytest.raises(InputError, match="--mirror ") as caught:
        load_settings(tmp_path / "absent.yaml", [word])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "publishing: {{attempts: '{}'}}",
        "mirrors: {{ubuntu: '{}'}}",
        "engine: {{step_timeout: '{}'}}",
        "engine: {{host: 'git+{}'}}",
        "base: {{debian-12: {{from: '{}'}}}}",
        "substitutes: {{'{}': x}}",
        "'{}': x",
        "{{'{0}': x, '{0}': y}}",
    ],
)
@pytest.mark.parametrize(
    "login", ["u:secret@", "secret@", ":secret@", "u:se/cret@", "u:s@secret@", "u:se cret@"]
)
def test_no_message_quotes_a_login(tmp_path: Path, text: str, login: str) -> None:
    path = written(tmp_path, text.format(f"https://{login}m.example/x"))
    with pytest.raises(InputError, match=r"imgbuild\.local\.yaml:1:") as caught:
        load_settings(path)
    assert "cret" not in str(caught.value)


def test_the_command_line_takes_the_place_of_the_file(tmp_path: Path) -> None:
    mirrors = "mirrors: {ubuntu: http://file/u, open-mpi: http://file/o}"
    path = written(tmp_path, f"{mirrors}\nengine: {{builder: [farm, mill-2], step_timeout: 5m}}\n")
    assert load_settings(path).engine.builders == ("farm", "mill-2")
    settings = load_settings(path, ["ubuntu=http://line/u"]).with_builders(("x", "y"))
    urls = {name: mirror.url for name, mirror in settings.mirrors.items()}
    assert urls == {"ubuntu": "http://line/u", "open-mpi": "http://file/o"}
    assert (settings.engine.builders, settings.engine.step_timeout) == (("x", "y"), 300)


def test_a_snapshot_is_of_the_service_at_its_url() -> None:
    time = "20261101T000000Z"
    assert Mirror(url="http://m/s/", snapshot=time).addresses("debian") == {
        "debian": f"http://m/s/archive/debian/{time}",
        "debian-security": f"http://m/s/archive/debian-security/{time}",
    }


@pytest.mark.parametrize(
    "line",
    [
        *("snapshot: 2026-11-01", "snapshot: 20260230T000000Z", "snapshot: 20261101T000000"),
        *("snapshot: ''", "url: ftp://m/", "keyring: k.gpg"),
    ],
)
def test_a_wrong_mirror_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, f"mirrors:\n  debian:\n    {line}\n    url: http://m/\n")
    with pytest.raises(InputError, match=r"yaml:[34]:\d+: "):
        load_settings(path)


@pytest.mark.parametrize(
    "base",
    [
        *("{from: registry}", "{from: layout}", "{from: layout, image: x@sha256:1}", "{}"),
        *("{from: bootstrap, path: /base}", "{from: elsewhere}", "{from: layout, path: base}"),
    ],
)
def test_a_base_without_its_place_is_refused(tmp_path: Path, base: str) -> None:
    path = written(tmp_path, f"base:\n  debian-12: {base}\n")
    with pytest.raises(InputError, match=r"yaml:[12]:\d+: "):
        load_settings(path)


def test_the_settings_of_the_engine(tmp_path: Path) -> None:
    assert Settings().engine.builders == ("default",)
    path = written(tmp_path, "engine: {builder: farm, step_timeout: 1h30m}\n")
    engine = load_settings(path).engine
    assert (engine.builders, engine.step_timeout) == (("farm",), 5400)
    assert engine.model_dump(include={"step_timeout"}) == {"step_timeout": "1h30m"}
    path.write_text("engine: {step_timeout: 30}\n")
    with pytest.raises(InputError, match="'30'"):
        load_settings(path)


UPSTREAMS = {"files": "https://up.example", "deep": "https://up.example/deep/"}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://up.example/a/f.tar", "http://m.example/files/a/f.tar"),
        ("https://up.example/deep/f.tar", "https://d.example/f.tar"),
        ("https://up.example/deeper/f.tar", "http://m.example/files/deeper/f.tar"),
        ("https://up.example.org/f", "https://up.example.org/f"),
    ],
)
def test_the_most_exact_mirror_is_asked(url: str, expected: str) -> None:
    mirrors = {"files": "http://m.example/files/", "deep": "https://d.example"}
    sites = Sites(UPSTREAMS, Settings.model_validate({"mirrors": mirrors}))
    assert sites.address(url) == expected


@pytest.mark.parametrize("name", ["deep", "python-index"])
def test_a_login_is_not_sent_over_plain_http(tmp_path: Path, name: str) -> None:
    """Neither by this program nor by apt and uv in a build; loopback is no network."""
    path = tmp_path / "netrc"
    hosts = ("m.example", "127.0.0.1", "localhost")
    path.write_text("".join(f"machine {host} login me password secret\n" for host in hosts))

    def sites(url: str) -> Sites:
        return Sites(UPSTREAMS, Settings(netrc=str(path), mirrors={name: Mirror(url=url)}))

    for url in ("https://m.example/a", "http://127.0.0.1:1/a", "http://localhost/a"):
        sites(url).check_logins()
        assert sites(url).login(url) == Credentials("me", "secret")
    refused = "http://m.example:8080/a"
    sites("http://other.example/").check_logins()
    with pytest.raises(CheckFailedError, match="plain http") as unsent:
        sites(refused).client().get(f"{refused}/f")
    assert "secret" not in str(unsent.value)
    refusal = "login for http://m.example:8080/a/?, .*plain http"
    with pytest.raises(InputError, match=refusal) as caught:
        sites(refused).check_logins()
    assert "secret" not in str(caught.value)
    with pytest.raises(InputError, match=refusal):
        Sites({"up": refused}, Settings(netrc=str(path))).check_logins()


def test_the_ca_bundle_is_the_configured_one_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    assert Sites(settings=Settings(ca_bundle=__file__)).verify == __file__
    assert Sites().verify == str(other)
    other.unlink()
    for bundle, named in ((None, "SSL_CERT_FILE"), ("/none", "ca_bundle")):
        with pytest.raises(InputError, match=f"{named} names /"):
            Sites(settings=Settings(ca_bundle=bundle)).verify  # noqa: B018 - a property


@pytest.mark.parametrize("name", ["-f", "a;b", "$(x)", "1x", "a/b", "a" * 64])
def test_a_builders_name_that_buildx_does_not_know_of_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"imgbuild\.local\.yaml:1"):
        load_settings(written(tmp_path, f"engine: {{builder: '{name}'}}\n"))
    with pytest.raises(InputError, match="--builder"):
        Settings().with_builders((name,))
