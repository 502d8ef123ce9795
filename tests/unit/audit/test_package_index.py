"""Which index is read, how its pages are read, and what contradicts them."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_server import FakeServer

from imgbuild.audit.compare import Contradiction
from imgbuild.audit.needs import SdistNeed
from imgbuild.audit.package_index import (
    IndexAddress,
    IndexProject,
    OfferedFile,
    compare_locks,
    compare_sdist,
    find_index,
    parse_page,
    read_project,
)
from imgbuild.dockerfile.lockfile import Lock
from imgbuild.errors import InputError, MachineError
from imgbuild.http import Answer, HttpClient
from imgbuild.settings import Settings

pytest_plugins = ("audit_fixtures",)
SHA = "ab" * 32


def test_the_index_is_the_one_that_uv_and_pip_use(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv" / "uv.toml").write_text('[[index]]\nurl = "https://b/s"\ndefault = true\n')
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "pip.conf").write_text("[global]\nindex-url = https://d/simple\n")
    one = {**home, "UV_INDEX_URL": "https://a/simple/", "PIP_INDEX_URL": "https://c/simple"}
    settings = Settings()
    assert find_index(settings, one) == IndexAddress("https://a/simple", "UV_INDEX_URL")
    del one["UV_INDEX_URL"]
    assert find_index(settings, one).url == "https://b/s"
    one["UV_NO_CONFIG"] = "1"
    assert find_index(settings, one).named_by == "PIP_INDEX_URL"
    del one["PIP_INDEX_URL"]
    assert find_index(settings, one).url == "https://d/simple"
    mirror = Settings.model_validate({"mirrors": {"python-index": "https://m/simple"}})
    assert find_index(mirror, one).url == "https://m/simple"


def test_without_settings_it_is_pips_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null", "UV_NO_CONFIG": "1"}
    index = SimpleNamespace(PyPI=SimpleNamespace(simple_url="https://default/simple"))
    monkeypatch.setitem(sys.modules, "pip._internal.models.index", index)
    monkeypatch.setitem(sys.modules, "pip._internal.models", SimpleNamespace(index=index))
    assert find_index(Settings(), here) == IndexAddress("https://default/simple", "pip's default")
    monkeypatch.setitem(sys.modules, "pip._internal.models.index", None)
    with pytest.raises(InputError, match="No index is named"):
        find_index(Settings(), here)


@pytest.mark.parametrize("url", ["file:///srv/simple", "ftp://index"])
def test_an_index_that_is_no_http_address(url: str) -> None:
    with pytest.raises(InputError, match="UV_DEFAULT_INDEX names"):
        find_index(Settings(), {"UV_DEFAULT_INDEX": url})


def test_a_uv_file_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "uv.toml").write_text("index-url = ")
    with pytest.raises(InputError, match=r"uv\.toml cannot be read"):
        find_index(Settings(), {"UV_CONFIG_FILE": str(tmp_path / "uv.toml")})


def _page(content: bytes, kind: str) -> Answer:
    return Answer(200, {"Content-Type": kind}, content, "https://host/simple/x/")


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
    with pytest.raises(MachineError, match=r"lists no file|no list of files"):
        parse_page(_page(content, kind))


def test_a_project_that_is_not_there_has_no_files(loopback: FakeServer, client: HttpClient) -> None:
    index = IndexAddress(f"{loopback.url}/simple", "a test")
    loopback.project("h5py", f'href="/h5py-1.tar.gz#sha256={SHA}">h5py-1.tar.gz')
    assert list(read_project(client, index, "H5py").files) == ["h5py-1.tar.gz"]
    assert read_project(client, index, "absent").files == {}
    loopback.answers["/simple/broken/"] = lambda _: (500, {}, b"")
    with pytest.raises(MachineError, match="it answered 500"):
        read_project(client, index, "broken")


def _offered(**changes: str) -> IndexProject:
    file = OfferedFile("horovod-0.19.5.tar.gz", "u", changes.get("sha256", SHA), 9)
    files = {file.name: OfferedFile(file.name, "u", file.sha256, 9, changes.get("yanked"))}
    return IndexProject("horovod", files)


@pytest.mark.parametrize(
    ("project", "kinds"),
    [
        (_offered(), []),
        (_offered(sha256="cd" * 32), ["sha256"]),
        (_offered(yanked="bad"), ["yanked"]),
        (IndexProject("horovod", {"other": OfferedFile("other", "u", SHA)}), ["missing"]),
        (IndexProject("horovod", {}), ["missing"]),
    ],
)
def test_horovod_against_the_index(project: IndexProject, kinds: list[str]) -> None:
    need = SdistNeed("0.19.5", SHA, ())
    assert [found.kind for found in compare_sdist(need, project)] == kinds


def _locked(project: IndexProject, *hashes: str) -> list[Contradiction]:
    lock = Lock("", {"horovod": "0.19.5", "unread": "1"}, {"horovod": hashes, "unread": (SHA,)})
    return list(compare_locks({"a.txt": lock}, {"horovod": project}))


def test_locks_against_the_index() -> None:
    assert _locked(_offered(), SHA) == []
    [gone] = _locked(_offered(), SHA, "cd" * 32)
    assert (gone.kind, gone.place) == ("gone", "images/locks/a.txt")
    [yanked] = _locked(_offered(yanked="bad"), SHA)
    assert (yanked.kind, yanked.evidence) == ("yanked", "horovod-0.19.5.tar.gz was withdrawn: bad")
    [missing] = _locked(IndexProject("horovod", {}), SHA)
    assert missing.kind == "missing"
