"""Which index is read, how its pages are read, and what contradicts them."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from faulty_server import FaultyServer, Reply

from imgbuild.audit.compare import Contradiction
from imgbuild.audit.facts import SdistNeed
from imgbuild.audit.package_index import (
    IndexAddress,
    IndexProject,
    OfferedFile,
    compare_locks,
    compare_sdist,
    find_index,
    read_project,
)
from imgbuild.dockerfile.lockfile import Lock
from imgbuild.errors import InputError, MachineError
from imgbuild.http import HttpClient
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


def test_an_index_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="UV_DEFAULT_INDEX names"):
        find_index(Settings(), {"UV_DEFAULT_INDEX": "file:///srv/simple"})
    (tmp_path / "uv.toml").write_text("index-url = ")
    with pytest.raises(InputError, match=r"uv\.toml cannot be read"):
        find_index(Settings(), {"UV_CONFIG_FILE": str(tmp_path / "uv.toml")})


def test_a_page_lists_files_with_their_sha256(server: FaultyServer, client: HttpClient) -> None:
    index = IndexAddress(f"{server.url}/simple", "a test")
    server.project("x", f'href="../../f/x-1.whl#sha256={SHA}" data-yanked="bad">x', 'href="/y">y')
    file = OfferedFile("x-1.whl", f"{server.url}/f/x-1.whl", SHA, "bad")
    assert read_project(client, index, "x").files == {"x-1.whl": file}
    server.give("/simple/y/", Reply(b"<html>sign in</html>", kind="text/html"))
    with pytest.raises(MachineError, match="lists no file"):
        read_project(client, index, "y")
    server.project("h5py", f'href="/h5py-1.tar.gz#sha256={SHA}">h5py-1.tar.gz')
    assert list(read_project(client, index, "H5py").files) == ["h5py-1.tar.gz"]
    assert read_project(client, index, "absent").files == {}
    server.give("/simple/broken/", Reply(b"", 500))
    with pytest.raises(MachineError, match="it answered 500"):
        read_project(client, index, "broken")


def _offered(sha256: str = SHA, yanked: str | None = None) -> IndexProject:
    file = OfferedFile("horovod-0.19.5.tar.gz", "u", sha256, yanked)
    return IndexProject("horovod", {file.name: file})


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
    need = SdistNeed("0.19.5", SHA)
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
