"""Which index is asked, how its pages are read, and what contradicts them."""

import json
from pathlib import Path

import pytest
from fake_server import FakeServer

from imgbuild.audit.client import Client, Page, choose_bundle
from imgbuild.audit.facts import Contradiction
from imgbuild.audit.failure import ReadError, UnreachableError
from imgbuild.audit.index_address import IndexAddress, find_index
from imgbuild.audit.needs import SdistNeed
from imgbuild.audit.packages import compare_locks, compare_sdist
from imgbuild.audit.project_page import OfferedFile, Project, parse_page, read_project
from imgbuild.dockerfile.lockfile import Lock
from imgbuild.errors import InputError
from imgbuild.http import shown

pytest_plugins = ("audit_fixtures",)
SHA = "ab" * 32


def test_the_index_is_what_the_tools_are_told(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv" / "uv.toml").write_text('[[index]]\nurl = "https://b/s"\ndefault = true\n')
    one = {**home, "UV_INDEX_URL": "https://a/simple/", "PIP_INDEX_URL": "https://c/simple"}
    assert find_index(one) == IndexAddress("https://a/simple", "UV_INDEX_URL")
    assert find_index({**one, "UV_INDEX_URL": ""}).url == "https://b/s"
    assert find_index({**one, "UV_INDEX_URL": "", "UV_NO_CONFIG": "1"}).named_by == "PIP_INDEX_URL"


def test_without_settings_it_is_pip_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    found = find_index({"HOME": str(tmp_path)})
    assert found.named_by == "pip's default"
    assert found.project("h5py") == f"{found.url}/h5py/"


@pytest.mark.parametrize("url", ["file:///srv/simple", "ftp://index"])
def test_an_index_that_is_no_http_address(url: str) -> None:
    with pytest.raises(InputError, match="UV_DEFAULT_INDEX names"):
        find_index({"UV_DEFAULT_INDEX": url})


def test_a_uv_file_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "uv.toml").write_text("index-url = ")
    with pytest.raises(InputError, match=r"uv\.toml cannot be read"):
        find_index({"UV_CONFIG_FILE": str(tmp_path / "uv.toml")})


def test_no_message_shows_a_password() -> None:
    assert shown("https://me:secret@host/x?token=1") == "https://host/x"


def test_a_named_bundle_must_exist(tmp_path: Path) -> None:
    assert choose_bundle(str(tmp_path), {"SSL_CERT_FILE": "/other"}) == str(tmp_path)
    with pytest.raises(InputError, match="SSL_CERT_FILE names /nowhere"):
        choose_bundle(None, {"SSL_CERT_FILE": "/nowhere"})


def _page(content: bytes, kind: str) -> Page:
    return Page("https://host/simple/x/", kind, content)


def test_both_forms_of_a_page_say_the_same() -> None:
    entry = {"filename": "x-1.whl", "url": "../../f/x-1.whl", "hashes": {"sha256": SHA}}
    document = {"files": [{**entry, "yanked": "bad", "size": 7}, {**entry, "hashes": {}}]}
    html = f'<a href="../../f/x-1.whl#sha256={SHA}" data-yanked="bad">x-1.whl</a>'.encode()
    [one] = parse_page(_page(json.dumps(document).encode(), "application/vnd.pypi.simple.v1+json"))
    [other] = parse_page(_page(html, "text/html"))
    assert one == OfferedFile("x-1.whl", "https://host/f/x-1.whl", SHA, 7, "bad")
    assert other == OfferedFile("x-1.whl", "https://host/f/x-1.whl", SHA, None, "bad")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"<html>sign in</html>", "text/html"),
        (b"<html>sign in</html>", "application/vnd.pypi.simple.v1+json"),
        (b'{"files": [1]}', "application/json"),
        (b"[]", "application/json"),
        (b"\xff\xfe", "text/html"),
    ],
)
def test_what_is_no_page_of_an_index(content: bytes, kind: str) -> None:
    with pytest.raises(ReadError, match=r"lists no file|no list of files"):
        parse_page(_page(content, kind))


def test_a_project_that_is_not_there_has_no_files(loopback: FakeServer, client: Client) -> None:
    index = IndexAddress(f"{loopback.url}/simple", "a test")
    loopback.project("h5py", f'href="/h5py-1.tar.gz#sha256={SHA}">h5py-1.tar.gz')
    assert list(read_project(client, index, "H5py").files) == ["h5py-1.tar.gz"]
    assert read_project(client, index, "absent").files == {}
    loopback.answers["/simple/broken/"] = lambda _: (500, {}, b"")
    with pytest.raises(ReadError, match="the server says 500"):
        read_project(client, index, "broken")


def test_an_index_that_is_not_there(client: Client) -> None:
    with pytest.raises(UnreachableError) as caught:
        read_project(client, IndexAddress("http://127.0.0.1:9", "a test"), "x")
    assert caught.value.cause == "refused"


def _offered(**changes: str) -> Project:
    file = OfferedFile("horovod-0.19.5.tar.gz", "u", changes.get("sha256", SHA), 9)
    files = {file.name: OfferedFile(file.name, "u", file.sha256, 9, changes.get("yanked"))}
    return Project("horovod", files)


@pytest.mark.parametrize(
    ("project", "kinds"),
    [
        (_offered(), []),
        (_offered(sha256="cd" * 32), ["sha256"]),
        (_offered(yanked="bad"), ["yanked"]),
        (Project("horovod", {"other": OfferedFile("other", "u", SHA)}), ["missing"]),
        (Project("horovod", {}), ["missing"]),
    ],
)
def test_horovod_against_the_index(project: Project, kinds: list[str]) -> None:
    need = SdistNeed("0.19.5", SHA, ())
    assert [found.kind for found in compare_sdist(need, project)] == kinds


def _locked(project: Project, *hashes: str) -> tuple[Contradiction, ...]:
    lock = Lock("", {"horovod": "0.19.5", "unread": "1"}, {"horovod": hashes, "unread": (SHA,)})
    return compare_locks({"a.txt": lock}, {"horovod": project})


def test_locks_against_the_index() -> None:
    assert _locked(_offered(), SHA) == ()
    [gone] = _locked(_offered(), SHA, "cd" * 32)
    assert (gone.kind, gone.place) == ("gone", "images/locks/a.txt")
    [yanked] = _locked(_offered(yanked="bad"), SHA)
    assert (yanked.kind, yanked.evidence) == ("yanked", "horovod-0.19.5.tar.gz was withdrawn: bad")
    [missing] = _locked(Project("horovod", {}), SHA)
    assert missing.kind == "missing"
