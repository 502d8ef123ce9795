"""Settings of a file and of the command line, the sites they name, and no secret in a message."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from imgbuild.errors import CheckFailedError, InputError
from imgbuild.settings import Mirror, Settings, load_settings
from imgbuild.sites import Credentials, Sites


def written(folder: Path, text: str) -> Path:
    """Return a file of settings with this text."""
    path = folder / "imgbuild.local.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "word", ["ubuntu", "=http://m/", "ubuntu=ftp://m/", "ubuntu=http://m/$(x)"]
)
def test_what_is_no_mirror_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("IMGBUILD_MIRRORS", word)
    with pytest.raises(InputError, match=r"give NAME=URL|is not the URL of a site"):
        load_settings(tmp_path / "absent.yaml")


def test_only_a_file_that_is_named_must_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty variable names no file, as the project takes it, too."""
    absent = tmp_path / "absent.yaml"
    monkeypatch.setenv("IMGBUILD_SETTINGS", "")
    assert load_settings(absent) == Settings()
    monkeypatch.setenv("IMGBUILD_SETTINGS", str(absent))
    with pytest.raises(InputError, match=str(absent)):
        load_settings(absent)


@pytest.mark.timeout(10)
def test_a_device_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="/dev/zero: "):
        load_settings(Path("/dev/zero"))
    path = written(tmp_path, "netrc: /dev/zero\n")
    with pytest.raises(InputError, match="netrc /dev/zero: "):
        Sites({}, load_settings(path)).login("https://mirror.example.org/")


@pytest.mark.timeout(10)
def test_a_long_version_takes_no_quadratic_time() -> None:
    note = {"note": "a test", "versions": {"git": "1" + ".1" * 50_000 + "!"}}
    with pytest.raises(ValidationError, match="versions"):
        Settings.model_validate({"standin": note})


def test_a_login_in_an_address_is_refused_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "https://name:secret@mirror.example.org/"
    path = written(tmp_path, f"mirrors: {{ubuntu: '{address}'}}\n")
    with pytest.raises(InputError, match="netrc") as caught:
        load_settings(path)
    assert "secret" not in str(caught.value)
    for word in (f"ubuntu={address}", address, f"{address}=x"):
        monkeypatch.setenv("IMGBUILD_MIRRORS", word)
        with pytest.raises(InputError, match="--mirror ") as caught:
            load_settings(tmp_path / "absent.yaml")
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "publishing: {{attempts: '{}'}}",
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


def test_mirrors_of_the_command_line_take_the_place_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "mirrors: {ubuntu: http://file/u, open-mpi: http://file/o}\n")
    monkeypatch.setenv("IMGBUILD_MIRRORS", "ubuntu=http://line/u")
    urls = {name: mirror.url for name, mirror in load_settings(path).mirrors.items()}
    assert urls == {"ubuntu": "http://line/u", "open-mpi": "http://file/o"}


def test_a_snapshot_is_of_the_service_at_its_url(tmp_path: Path) -> None:
    time = "20261101T000000Z"
    path = written(tmp_path, f"mirrors: {{debian: {{url: http://m/s/, snapshot: {time}}}}}\n")
    assert load_settings(path).mirrors["debian"].addresses("debian") == {
        "debian": f"http://m/s/archive/debian/{time}",
        "debian-security": f"http://m/s/archive/debian-security/{time}",
    }
    assert Mirror(url="http://m/").addresses("debian") == {"debian": "http://m/"}


@pytest.mark.parametrize("time", ["2026-11-01", "20260230T000000Z", "20261101T000000", "now", "''"])
def test_what_is_no_time_of_a_snapshot_is_refused_with_its_line(tmp_path: Path, time: str) -> None:
    path = written(tmp_path, f"mirrors:\n  debian:\n    snapshot: {time}\n    url: http://m/\n")
    with pytest.raises(InputError, match=r"yaml:3:\d+: "):
        load_settings(path)


@pytest.mark.parametrize("other", ["keyring: /k.gpg", "snapshot: 20261101T000000Z"])
def test_a_mirror_needs_its_url(tmp_path: Path, other: str) -> None:
    path = written(tmp_path, f"mirrors: {{debian: {{{other}}}}}\n")
    with pytest.raises(InputError, match="url"):
        load_settings(path)


def test_a_step_may_run_as_long_as_is_set(tmp_path: Path) -> None:
    path = written(tmp_path, "engine: {step_timeout: 1h30m}\n")
    engine = load_settings(path).engine
    assert engine.step_timeout == 5400
    assert engine.model_dump(exclude_none=True) == {"step_timeout": "1h30m"}
    path.write_text("engine: {step_timeout: 30}\n")
    with pytest.raises(InputError, match="'30'"):
        load_settings(path)


UPSTREAMS = {
    "files": "https://up.example",
    "deep": "https://up.example/deep/",
    "b": "https://b.example/x",
}
MIRRORS = {"files": "http://m.example/files/", "deep": "https://d.example"}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://up.example/a/f.tar", "http://m.example/files/a/f.tar"),
        ("https://up.example/deep/f.tar", "https://d.example/f.tar"),
        ("https://up.example/deeper/f.tar", "http://m.example/files/deeper/f.tar"),
        ("https://up.example.org/f", "https://up.example.org/f"),
        ("https://b.example/x/f", "https://b.example/x/f"),
        ("https://c.example/f", "https://c.example/f"),
    ],
)
def test_the_most_exact_mirror_is_asked(url: str, expected: str) -> None:
    sites = Sites(UPSTREAMS, Settings.model_validate({"mirrors": MIRRORS}))
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
    with pytest.raises(CheckFailedError, match="the login is not sent there") as unsent:
        sites(refused).client().get(f"{refused}/f")
    assert "secret" not in str(unsent.value)
    refusal = "login for http://m.example:8080/a/?, which is plain http"
    with pytest.raises(InputError, match=refusal) as caught:
        sites(refused).check_logins()
    assert "secret" not in str(caught.value)
    with pytest.raises(InputError, match=refusal):
        Sites({"up": refused}, Settings(netrc=str(path))).check_logins()


def test_the_ca_bundle_is_the_configured_one_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.touch()
    other.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    assert Sites(settings=Settings(ca_bundle=str(one))).verify == str(one)
    assert Sites().verify == str(other)
    monkeypatch.setenv("SSL_CERT_FILE", "/none")
    with pytest.raises(InputError, match="SSL_CERT_FILE names /none"):
        Sites().verify  # noqa: B018 - a property
    with pytest.raises(InputError, match="ca_bundle names /none"):
        Sites(settings=Settings(ca_bundle="/none")).verify  # noqa: B018 - a property


def test_a_mirror_is_advised_as_one_of_the_settings_or_the_command_line() -> None:
    sites = Sites(UPSTREAMS, Settings.model_validate({"mirrors": MIRRORS}))
    assert "the settings or --mirror" in sites.advice("http://m.example/files/f")
    assert "name a mirror" in sites.advice("https://up.example/f")


def test_builders_of_the_command_line_take_the_place_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = tmp_path / "absent.yaml"
    assert load_settings(absent).engine.builders == ("default",)
    one = written(tmp_path, "engine: {builder: farm, step_timeout: 5m}\n")
    assert load_settings(one).engine.builders == ("farm",)
    several = written(tmp_path, "engine: {builder: [farm, mill-2], step_timeout: 5m}\n")
    assert load_settings(several).engine.builders == ("farm", "mill-2")
    monkeypatch.setenv("IMGBUILD_BUILDER", "x y")
    engine = load_settings(several).engine
    assert (engine.builders, engine.step_timeout) == (("x", "y"), 300)
    assert load_settings(absent).engine.builders == ("x", "y")


@pytest.mark.parametrize("name", ["-f", "a;b", "$(x)", "1x", "a/b", "a" * 64])
def test_a_builders_name_that_buildx_does_not_know_of_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with pytest.raises(InputError, match=r"imgbuild\.local\.yaml:1"):
        load_settings(written(tmp_path, f"engine: {{builder: '{name}'}}\n"))
    monkeypatch.setenv("IMGBUILD_BUILDER", name)
    with pytest.raises(InputError, match="--builder"):
        load_settings(tmp_path / "absent.yaml")
