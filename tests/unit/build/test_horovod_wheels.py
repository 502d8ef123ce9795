"""Kept Horovod wheels: what their key depends on, and that a damaged one is never used."""

import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from imgbuild.build.horovod_wheels import UNPACKED_LIMIT, find_wheel, keep_wheel, wheel_key
from imgbuild.core.project import Project
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.engine.build import BuildTarget
from imgbuild.locks.lockfile import read_lock
from imgbuild.matrix.images import Image
from support.bench import NEW, OLD, Bench
from support.bombs import UNPACKED, memory_below, replaced, understated
from support.project_copy import copied

WHEEL_FILE = "horovod-0.19.5.dist-info/WHEEL"
WHEEL_NAME = "horovod-0.19.5-cp36-cp36m-linux_x86_64.whl"


def make_wheel(
    name: str = "horovod-0.19.5", tag: str = "cp36-cp36m-linux_x86_64", size: int = 5000
) -> bytes:
    """Return a wheel of one file."""
    content = BytesIO()
    method = zipfile.ZIP_DEFLATED if size > UNPACKED_LIMIT else zipfile.ZIP_STORED
    with zipfile.ZipFile(content, "w", method) as archive:
        archive.writestr("horovod/x.so", bytes(size))
        archive.writestr(f"{name}.dist-info/WHEEL", f"Tag: {tag}\n")
    return content.getvalue()


def with_text(method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a wheel whose WHEEL unpacks to much."""
    return replaced(make_wheel(), {WHEEL_FILE: bytes(UNPACKED)}, method)


WHEEL = make_wheel()
KEY = "a" * 64


@pytest.mark.parametrize(
    "damaged",
    [
        WHEEL[:-30],
        WHEEL[:2000] + b"\xff" + WHEEL[2001:],
        b"no archive",
        make_wheel("../horovod-1"),
        pytest.param(make_wheel(size=UNPACKED_LIMIT + 1), id="unpacks to too much"),
        pytest.param(with_text(zipfile.ZIP_DEFLATED), id="WHEEL unpacks to too much"),
        pytest.param(with_text(zipfile.ZIP_BZIP2), id="bzip2"),
        pytest.param(understated(with_text(), WHEEL_FILE), id="an understated size"),
    ],
)
def test_wheel_cache_replaces_damaged_wheels(tmp_path: Path, damaged: bytes) -> None:
    with memory_below(UNPACKED // 2):
        keep_wheel(KEY, damaged, tmp_path)
    assert find_wheel(KEY, tmp_path) is None
    keep_wheel(KEY, WHEEL, tmp_path)
    folder = find_wheel(KEY, tmp_path)
    assert folder
    assert [path.name for path in folder.iterdir()] == [WHEEL_NAME]
    for change in (
        lambda: (folder / WHEEL_NAME).write_bytes(damaged),
        (folder / WHEEL_NAME).unlink,
        lambda: (folder / "another.whl").write_bytes(b""),
    ):
        change()
        assert find_wheel(KEY, tmp_path) is None
        keep_wheel(KEY, WHEEL, tmp_path)
        assert find_wheel(KEY, tmp_path) == folder


@pytest.fixture
def checkout(project: Project, tmp_path: Path) -> Project:
    return copied(project, tmp_path / "checkout")


def _key(made: Bench, project: Project, image: Image | None = None) -> str:
    key = wheel_key(image or made.context.images[1], project, made.context.inputs)
    assert key
    return key


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        (('HOROVOD_BUILD_ARCH_FLAGS="-mavx ', 'HOROVOD_BUILD_ARCH_FLAGS="-mavx2 '), True),
        (("fetch 0.19.5", "fetch 0.19.4"), True),
        ((" g++ gcc libc6-dev make\n", " g++-11 gcc libc6-dev make\n"), True),
        (("# Horovod's wheel, compiled", "# Another comment"), False),
        (("openssh-server", "dropbear"), False),
    ],
)
def test_of_the_dockerfile_only_what_compiles_it_matters(
    bench: Bench,
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    change: tuple[str, str],
    matters: bool,
) -> None:
    before = _key(bench, project)
    text = render_dockerfile(bench.context.images[1], project.templates).text
    assert change[0] in text
    changed = Dockerfile(text.replace(*change))
    monkeypatch.setattr("imgbuild.build.horovod_wheels.own_dockerfile", lambda *_: changed)
    assert (_key(bench, project) != before) is matters


@pytest.mark.parametrize(
    ("name", "old", "matters"),
    [
        ("lock", "tensorflow-cpu==", True),
        ("lock", "numpy==", True),
        ("lock", "werkzeug==", False),
        ("adasum_float16.py", "\n", True),
        ("horovod/compile", "\n", True),
        ("horovod/parallel/sitecustomize.py", "\n", True),
        ("packages/slim.py", "\n", False),
        ("start/ssh_config_mpi", "\n", False),
    ],
)
def test_horovod_wheel_key_covers_what_compiles_it(
    bench: Bench, checkout: Project, name: str, old: str, matters: bool
) -> None:
    keys = {_key(bench, checkout, image) for image in bench.context.images}
    assert len(keys) == 2
    lock = checkout.locks / bench.context.images[1].lock_name
    path = lock if name == "lock" else checkout.files / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, f"{old}9", 1))
    assert (_key(bench, checkout) not in keys) is matters


def test_the_base_image_does_not_matter_but_a_stand_in_does(bench: Bench, project: Project) -> None:
    before, inputs = _key(bench, project), bench.context.inputs
    refreshed = replace(inputs.bases["debian-12"], digest="sha256:new")
    bench.change(inputs=replace(inputs, bases={"debian-12": refreshed}, uv_version="99"))
    assert _key(bench, project) == before
    bench.change(inputs=replace(inputs, standin="of the tests"))
    assert _key(bench, project) != before


def test_a_wheel_is_for_one_mpi_and_one_python(
    bench: Bench, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the instructions that compile it and the packages are the same."""
    project, mine, later = bench.context.project, images[NEW], images["tf-2.12-cpu-debian"]
    same = render_dockerfile(mine, project.templates), read_lock(project.locks / mine.lock_name)
    monkeypatch.setattr("imgbuild.build.horovod_wheels.own_dockerfile", lambda *_: same[0])
    monkeypatch.setattr("imgbuild.build.horovod_wheels.read_lock", lambda *_: same[1])
    bench.use(mine, later)
    pins = tuple(
        replace(one, sha256="f" * 64) if one.component == "mpi" else one for one in mine.pins
    )
    assert len({_key(bench, project, one) for one in (mine, later, replace(mine, pins=pins))}) == 3


def test_a_wheel_is_compiled_once_and_the_image_takes_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the image then fails, and where two images need the same one."""
    compiled: list[str] = []

    def export(_buildx: object, target: BuildTarget, folder: Path, **_: object) -> float:
        assert target.target == "horovod-wheel"
        compiled.append(target.name)
        (folder / WHEEL_NAME).write_bytes(WHEEL)
        return 40.0

    monkeypatch.setattr("imgbuild.build.image_build.export_files", export)
    monkeypatch.setattr("imgbuild.build.image_build.wheel_key", lambda *_: "k" * 64)
    bench.broken = {OLD}
    results = bench.build(test=False, keep_going=True)
    assert len(compiled) == 1
    assert all("horovod-wheel" in target.contexts for target in bench.targets)
    (new,) = (result for result in results if result.name == NEW)
    assert new.work_seconds in {61.5, 101.5}
    bench.broken = set()
    bench.build(test=False)
    assert len(compiled) == 1


def test_without_a_wheel_in_the_cache_the_image_compiles_its_own(bench: Bench) -> None:
    """As where the cache cannot be written."""
    assert {result.state for result in bench.build(test=False)} == {"done"}
    images = [target for target in bench.targets if target.name in {OLD, NEW}]
    assert [name for target in images for name in target.contexts if "wheel" in name] == []
