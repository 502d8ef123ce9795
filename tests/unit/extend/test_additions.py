"""What `imgbuild extend` adds to a base: resolved by uv itself, from a folder for an index.

Packages that are in the base or do not fit it are tried on a real one, in tests/e2e/test_extend.py.
"""

import os
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import copy

import pytest

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.files import file_sha256
from imgbuild.core.process import Finished
from imgbuild.core.project import Project
from imgbuild.extend.additions import lock_additions, write_empty_wheel
from imgbuild.extend.base_image import BaseImage, family_base
from imgbuild.extend.conda_file import CondaPackages
from imgbuild.extend.extension import read_extension, requested_lines
from imgbuild.extend.requirement_files import judge_lines
from imgbuild.locks.lockfile import Lock
from imgbuild.matrix.images import Image
from support.fake_uv import no_metadata
from support.hostile_package import HostileIndex
from support.project_copy import ROOT

PACKAGES = {"numpy": "1.18.5", "tensorflow-cpu": "2.2.0"}
BASE = BaseImage("me/base:1", "me/base:1", "3.6.15", "2.36", "debian-12", PACKAGES, PACKAGES)


@dataclass
class Index:
    """A folder of wheels, or pages of them, for an index; ``folder`` is the user's.

    ``environment`` is what uv is told of it.
    """

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "index").mkdir(exist_ok=True)

    def publish(self, name: str, version: str, *requires: str) -> Path:
        """Put a wheel into the folder."""
        write_empty_wheel(self.folder / "index", name, version, requires)
        return self.folder / "index" / f"{name}-{version}-py3-none-any.whl"

    def show(self, *wheels: Path, attributes: str = "") -> None:
        """Move wheels of app to its page, of an index that has pages."""
        page = self.folder / "simple" / "app" / "index.html"
        page.parent.mkdir(parents=True)
        moved = [wheel.rename(page.parent / wheel.name) for wheel in wheels]
        links = [
            f'<a href="{one.name}#sha256={file_sha256(one)}"{attributes}>{one.name}</a>'
            for one in moved
        ]
        page.write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")
        self.environment["UV_DEFAULT_INDEX"] = page.parents[1].as_uri()

    def lock(self, *requested: str, base: BaseImage = BASE, upgrade: bool = False) -> Lock:
        links = self.folder / "index"
        own = {"UV_OFFLINE": "1", "UV_FIND_LINKS": str(links)}
        return lock_additions(
            requested,
            base,
            self.path,
            environment={**os.environ, **own, **self.environment},
            read_metadata=no_metadata,
            folder=self.folder,
            upgrade=upgrade,
        )

    @property
    def path(self) -> Path:
        return self.folder / "train.lock.txt"


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path)


def test_hashes_constraints_and_wheels_of_the_user_are_kept_to(index: Index) -> None:
    """Of the index no other file may be installed than those whose hashes are given."""
    wheel = index.publish("app", "1.0")
    another = Path(copy(wheel, wheel.with_name("app-1.0-1-py3-none-any.whl")))
    with zipfile.ZipFile(another, "a") as archive:
        archive.writestr("app.py", "evil")
    digest, others = file_sha256(wheel), f"--hash=sha256:{'0' * 64}"
    index.show(wheel, another)
    for name, version in (("helper", "1.0"), ("helper", "2.0"), ("other", "1.0")):
        index.publish(name, version)
    own = index.publish("own", "1.0+me", "helper")
    own = own.rename(index.folder / own.name)
    lines = [f"app==1.0 --hash=sha256:{digest} {others}", "other", "-c helper<2"]
    lines += [f"{own.name} --hash=sha256:{file_sha256(own)}"]
    lock = index.lock(*lines)
    assert lock.versions == {"app": "1.0", "helper": "1.0", "other": "1.0", "own": "1.0+me"}
    assert (lock.hashes["app"], lock.hashes["own"]) == ((digest,), (file_sha256(own),))
    assert str(index.folder) not in index.path.read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"app 1\.0: no file of the index has a hash"):
        index.lock(f"app {others}")


def test_uv_gets_no_wheel_of_the_user(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may read another requirement in it than imgbuild does."""
    lines = list[str]()

    def lock(_: object, __: object, folder: Path, *_more: object) -> tuple[str, Finished]:
        lines.extend((folder / "requested.in").read_text().splitlines())
        return "", Finished(1, errors="enough")

    monkeypatch.setattr("imgbuild.extend.additions.lock_packages", lock)
    own = index.publish("own", "1.0").rename(index.folder / "own-1.0-py3-none-any.whl")
    with pytest.raises(InputError, match="enough"):
        index.lock(f"{own.name} --hash=sha256:{file_sha256(own)}")
    (line,) = lines
    assert line.startswith("own @ file://")
    assert own.as_uri() not in line


@pytest.mark.parametrize(
    ("version", "movable", "way"),
    [
        ("1.0", {}, "Remove the wheel. "),
        ("1.0+me", {}, "Remove the wheel. "),
        ("1.0", {"kept": ">=1"}, "another version"),
    ],
)
def test_a_wheel_that_the_base_would_hide_is_refused(
    index: Index, version: str, movable: dict[str, str], way: str
) -> None:
    base = replace(BASE, packages={"kept": "1.0"}, local=(), bounds=movable)
    own = index.publish("kept", version).rename(index.folder / f"kept-{version}-py3-none-any.whl")
    line = f"{own.name} --hash=sha256:{file_sha256(own)}"
    with pytest.raises(InputError, match=r"has kept 1\.0, so the wheel") as error:
        index.lock(line, base=base)
    assert way in str(error.value)
    assert index.lock(line, base=replace(base, added={"kept": version}, packages={"kept": version}))


def test_a_wheel_that_requires_an_address(index: Index) -> None:
    """A package by address would be built here, on behalf of a wheel that is given by its path."""
    hostile = HostileIndex(index.folder / "index")
    source = hostile.source("evil", "1.0")
    own = index.publish("own", "1.0", f"evil @ {source.as_uri()}")
    own = own.rename(index.folder / own.name)
    line = f"{own.name} --hash=sha256:{file_sha256(own)}"
    for more in ((), ("evil==1.0",)):
        with pytest.raises(InputError, match=r"own-1\.0.*evil @ file.* from a package index"):
            index.lock(line, *more)
    assert not hostile.mark.exists()
    own.write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"own-1\.0-py3-none-any\.whl: .*Build the wheel again"):
        index.lock(line)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, None])
def test_a_wheel_whose_metadata_cannot_be_read(index: Index, method: int | None) -> None:
    """A piece of bzip2 or LZMA unpacks whole; without a method the file is encrypted."""
    wheel = index.folder / "own-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("own-1.0.dist-info/METADATA", "Name: own", method)
    if method is None:
        content = bytearray(wheel.read_bytes())
        content[6] |= 1
        content[content.rindex(b"PK\1\2") + 8] |= 1
        wheel.write_bytes(content)
    with pytest.raises(InputError, match=r"own-1\.0-py3-none-any\.whl: .*Build the wheel again"):
        index.lock("own-1.0-py3-none-any.whl")


def test_a_package_for_newer_pythons_is_refused_without_a_hint_about_options(index: Index) -> None:
    """An index with pages, as all but a folder are, says for which Pythons a file is."""
    newer = ' data-requires-python="&gt;=3.8"'
    index.show(index.publish("app", "2"), attributes=newer)
    with pytest.raises(InputError, match=r"does not satisfy Python>=3\.8") as error:
        index.lock("app==2")
    assert "hint" not in str(error.value)


def test_a_large_package_without_wheels_is_refused_without_options_of_uv(index: Index) -> None:
    (index.folder / "index" / "pandas-0.25.0.tar.gz").write_bytes(b"")
    with pytest.raises(InputError) as error:
        index.lock("pandas==0.25")
    said = str(error.value)
    minor = BASE.python.rpartition(".")[0]
    assert f"pandas is not compiled; use one with wheels for Python {minor}." in said
    assert "--no-build" not in said


def test_packages_move_within_the_bounds_of_their_dependents(index: Index) -> None:
    """The base's version is preferred to a newer one, and is then not in the lock."""
    packages = {**PACKAGES, "pyyaml": "6.0.1", "absl-py": "1.4.0"}
    base = replace(BASE, packages=packages, bounds={"pyyaml": "", "absl-py": ">=0.7,<2"})
    for version in ("0.5", "0.13.0", "1.4.0", "1.5.0"):
        index.publish("absl-py", version)
    for version in ("5.4.1", "6.0.1", "6.0.2"):
        index.publish("pyyaml", version)
    index.publish("old", "1", "pyyaml<6", "absl-py")
    first = index.lock("old", base=base)
    assert first.versions == {"old": "1", "pyyaml": "5.4.1"}
    index.publish("pyyaml", "5.5")
    assert index.lock("old", "absl-py", base=base).versions == first.versions
    assert index.lock("absl-py==0.13.0", base=base).versions == {"absl-py": "0.13.0"}
    assert index.lock("pyyaml", "absl-py", base=base, upgrade=True).versions == {}
    with pytest.raises(InputError, match=r"absl-py>=0\.7"):
        index.lock("absl-py==0.5", base=base)
    with pytest.raises(InputError, match="numpy"):
        index.lock("numpy<1.18", base=base)


def test_companions_keep_to_the_tensorflow_of_the_base(index: Index) -> None:
    base = replace(BASE, bounds={"keras": ">=2.3,<2.4", "intel-tensorflow": "<0"})
    for version in ("2.2.5", "2.3.1", "2.10.0"):
        index.publish("keras", version)
    assert index.lock("keras", base=base).versions == {"keras": "2.3.1"}
    with pytest.raises(InputError, match=r"keras==2\.10\.0"):
        index.lock("keras==2.10.0", base=base)
    index.publish("intel-tensorflow", "2.2.0")
    index.publish("fast", "1.0", "intel-tensorflow")
    with pytest.raises(InputError, match="intel-tensorflow<0"):
        index.lock("fast", base=base)


def test_a_lock_for_the_same_request_asks_nobody(index: Index) -> None:
    index.publish("app", "1.0")
    first = index.lock("app")
    index.publish("app", "1.1")
    index.publish("other", "1.0")
    nobody = {"PATH": "", "UV_FIND_LINKS": str(index.folder / "gone")}
    assert Index(index.folder, nobody).lock("app") == first
    assert index.lock("app", "other").versions == {"app": "1.0", "other": "1.0"}
    newest = index.lock("app", "other", upgrade=True)
    assert newest.versions == {"app": "1.1", "other": "1.0"}


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"my notes\n", r"lock\.txt:1: .*# request"), (b"\xff\xff", "lock.txt: not UTF-8 text")],
    ids=["notes", "no text"],
)
def test_another_file_is_not_replaced(index: Index, content: bytes, says: str) -> None:
    index.path.write_bytes(content)
    for upgrade in (False, True):
        with pytest.raises(InputError, match=says):
            index.lock("app", upgrade=upgrade)
        assert index.path.read_bytes() == content


def test_an_index_that_does_not_answer(index: Index) -> None:
    address = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}
    index.environment |= {"UV_OFFLINE": "0", **address}
    with pytest.raises(MachineError, match="cannot be reached to resolve the additions"):
        index.lock("app")


def test_wheels_are_for_the_systems_glibc() -> None:
    for glibc, platform in {
        "2.17": "x86_64-manylinux2014",
        "2.27": "x86_64-manylinux2014",
        "2.36": "x86_64-manylinux_2_36",
        "2.99": "x86_64-manylinux_2_40",
        "": "x86_64-manylinux2014",
    }.items():
        assert replace(BASE, glibc=glibc).platform == platform


@pytest.mark.parametrize(
    "lock", sorted((ROOT / "examples").glob("*/*.lock.txt")), ids=lambda one: one.name
)
def test_extend_takes_the_lock_of_an_example_as_it_is(
    lock: Path, images: dict[str, Image], tmp_path: Path
) -> None:
    """Of another request it would be made anew, from an index that is not here."""
    extension = read_extension(next(lock.parent.glob("*.yaml")))
    base = family_base(images[f"tf-{extension.tf}-cpu-debian"], Project(ROOT))
    lines = requested_lines(extension, lock.parent, CondaPackages())
    wanted = judge_lines(lines, base, lock.parent, lambda _: None)
    copied = Path(copy(lock, tmp_path))
    environment = {**os.environ, "UV_OFFLINE": "1", "UV_NO_CACHE": "1"}
    lock_additions(wanted, base, copied, environment=environment, read_metadata=no_metadata)
    assert copied.read_bytes() == lock.read_bytes()
