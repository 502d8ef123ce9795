"""What `imgbuild extend` adds to a base: resolved by uv itself, from a folder for an index."""

import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from shutil import copy

import pytest
from bench import NEW

from imgbuild.errors import InputError, MachineError
from imgbuild.extend.additions import lock_additions
from imgbuild.extend.base_image import BaseImage, family_base
from imgbuild.files import file_sha256
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from releases import release_of

PACKAGES = {"numpy": "1.18.5", "tensorflow-cpu": "2.2.0"}
BASE = BaseImage("me/base:1", "me/base:1", "3.6.15", "2.36", "debian-12", PACKAGES, PACKAGES)
Publish = Callable[..., Path]


@pytest.fixture
def index(tmp_path: Path) -> Path:
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


@pytest.fixture
def environment(index: Path) -> Mapping[str, str]:
    own = {"UV_OFFLINE": "1", "UV_FIND_LINKS": str(index), "UV_CACHE_DIR": str(index / "cache")}
    return {**os.environ, **own}


@pytest.fixture
def publish(index: Path) -> Publish:
    """Return how to put a wheel into the index."""

    def put(name: str, version: str, *requires: str) -> Path:
        path = index / f"{name}-{version}-py3-none-any.whl"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {one}" for one in requires]
        with zipfile.ZipFile(path, "w") as archive:
            info = f"{name}-{version}.dist-info"
            archive.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        return path

    return put


def test_what_the_base_has_of_the_index_is_not_locked_again(
    publish: Publish, environment: Mapping[str, str], tmp_path: Path
) -> None:
    for name, version in PACKAGES.items():
        publish(name.replace("-", "_"), version)
    publish("app", "1.0", "numpy>=1.10")
    lock = lock_additions(["app"], replace(BASE, local=()), tmp_path / "lock.txt", environment)
    assert lock.versions == {"app": "1.0"}


@pytest.mark.parametrize(
    ("requires", "says"),
    [
        ("tensorflow>=2.5", ("app depend on tensorflow>=2.5", "tensorflow==2.2.0")),
        ("nowhere", ("nowhere", "app depend on nowhere")),
    ],
)
def test_a_conflict_says_who_wants_what(
    publish: Publish,
    environment: Mapping[str, str],
    tmp_path: Path,
    requires: str,
    says: tuple[str, ...],
) -> None:
    publish("app", "1.0", requires)
    path = tmp_path / "train.lock.txt"
    with pytest.raises(InputError) as error:
        lock_additions(["app"], BASE, path, environment)
    for words in (*says, "me/base:1", "Nothing was changed"):
        assert words in str(error.value)
    assert "me-base-1" not in str(error.value)
    assert not path.exists()


def test_hashes_constraints_and_wheels_of_the_user_are_kept_to(
    publish: Publish, environment: Mapping[str, str], tmp_path: Path
) -> None:
    """Of the index no other file may be installed than those whose hashes are given."""
    page = tmp_path / "simple" / "app" / "index.html"
    page.parent.mkdir(parents=True)
    wheel = publish("app", "1.0").rename(page.parent / "app-1.0-py3-none-any.whl")
    another = Path(copy(wheel, wheel.with_name("app-1.0-1-py3-none-any.whl")))
    with zipfile.ZipFile(another, "a") as archive:
        archive.writestr("app.py", "evil")
    for one in (wheel, another):
        with page.open("a") as text:
            text.write(f'<a href="{one.name}#sha256={file_sha256(one)}">{one.name}</a>')
    index = {**environment, "UV_DEFAULT_INDEX": page.parents[1].as_uri()}
    for name, version in (("helper", "1.0"), ("helper", "2.0"), ("other", "1.0")):
        publish(name, version)
    own = publish("own", "1.0+me", "helper").rename(tmp_path / "own-1.0+me-py3-none-any.whl")
    digest, others = file_sha256(wheel), f"--hash=sha256:{'0' * 64}"
    lines = [f"app==1.0 --hash=sha256:{digest} {others}", "other", "-c helper<2"]
    lines += [f"{own.name} --hash=sha256:{file_sha256(own)}"]
    path = tmp_path / "lock.txt"
    lock = lock_additions(lines, BASE, path, index, folder=tmp_path)
    assert lock.versions == {"app": "1.0", "helper": "1.0", "other": "1.0", "own": "1.0+me"}
    assert (lock.hashes["app"], lock.hashes["own"]) == ((digest,), (file_sha256(own),))
    assert str(tmp_path) not in path.read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"app 1\.0: no file of the index has a hash"):
        lock_additions([f"app {others}"], BASE, path, index)


def test_another_tensorflow_names_the_images_that_have_it(
    images: dict[str, Image], project: Project, tmp_path: Path
) -> None:
    base = family_base(images[NEW], project)
    with pytest.raises(InputError) as error:
        lock_additions(["tensorflow==2.2.0"], base, tmp_path / "lock.txt", {})
    assert f"{NEW} has TensorFlow {release_of('2.2')}, which stays" in str(error.value)
    assert "tensorflow==2.2.*, or take --tf 2.2 --stack ubuntu." in str(error.value)


def test_a_package_for_newer_pythons_is_refused_without_a_hint_about_options(
    publish: Publish, environment: Mapping[str, str], tmp_path: Path
) -> None:
    """An index with pages, as all but a folder are, says for which Pythons a file is."""
    page = tmp_path / "simple" / "app" / "index.html"
    page.parent.mkdir(parents=True)
    wheel = publish("app", "2").rename(page.parent / "app-2-py3-none-any.whl")
    link = f'<a href="{wheel.name}" data-requires-python="&gt;=3.8">{wheel.name}</a>'
    page.write_text(f"<!DOCTYPE html><html><body>{link}</body></html>")
    index = {**environment, "UV_DEFAULT_INDEX": page.parents[1].as_uri()}
    with pytest.raises(InputError, match=r"does not satisfy Python>=3\.8") as error:
        lock_additions(["app==2"], BASE, tmp_path / "lock.txt", index)
    assert "hint" not in str(error.value)


def test_a_lock_for_the_same_request_asks_nobody(
    publish: Publish, environment: Mapping[str, str], tmp_path: Path
) -> None:
    publish("app", "1.0")
    path = tmp_path / "train.lock.txt"
    first = lock_additions(["app"], BASE, path, environment)
    publish("app", "1.1")
    publish("other", "1.0")
    nobody = {**environment, "PATH": "", "UV_FIND_LINKS": str(tmp_path / "gone")}
    assert lock_additions(["app"], BASE, path, nobody) == first
    more = lock_additions(["app", "other"], BASE, path, environment)
    assert more.versions == {"app": "1.0", "other": "1.0"}
    newest = lock_additions(["app", "other"], BASE, path, environment, upgrade=True)
    assert newest.versions == {"app": "1.1", "other": "1.0"}


@pytest.mark.parametrize("upgrade", [False, True])
@pytest.mark.parametrize(
    ("content", "says"),
    [(b"my notes\n", r"train\.lock\.txt:1: not a lock"), (b"\xff\xfe", "lock.txt: not UTF-8 text")],
)
def test_another_file_is_not_replaced(
    environment: Mapping[str, str], tmp_path: Path, content: bytes, says: str, *, upgrade: bool
) -> None:
    path = tmp_path / "train.lock.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        lock_additions(["app"], BASE, path, environment, upgrade=upgrade)
    assert path.read_bytes() == content


def test_an_index_that_does_not_answer(environment: Mapping[str, str], tmp_path: Path) -> None:
    kept = {name: one for name, one in environment.items() if name != "UV_OFFLINE"}
    gone = {**kept, "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}
    with pytest.raises(MachineError, match="cannot be reached for the additions"):
        lock_additions(["app"], BASE, tmp_path / "lock.txt", gone)


@pytest.mark.parametrize(
    ("glibc", "platform"),
    [
        ("2.17", "x86_64-manylinux2014"),
        ("2.27", "x86_64-manylinux2014"),
        ("2.36", "x86_64-manylinux_2_36"),
        ("2.99", "x86_64-manylinux_2_40"),
        ("", "x86_64-manylinux2014"),
    ],
)
def test_wheels_are_for_the_systems_glibc(glibc: str, platform: str) -> None:
    assert BaseImage("b", "b:1", "3.11.2", glibc, "x", {}, {}).platform == platform
