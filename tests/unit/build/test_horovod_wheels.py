"""Kept Horovod wheels: what their key depends on, and that a damaged one is never used."""

import shutil
import zipfile
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from bench import NEW, OLD, Bench

from imgbuild.build.horovod_wheels import WheelStore, open_wheels, wheel_file_name, wheel_key
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import read_dockerfile
from imgbuild.matrix.images import Image
from imgbuild.project import Project

WHEEL = "horovod-0.19.5-cp36-cp36m-linux_x86_64.whl"


def make_wheel(folder: Path, content: bytes = b"code") -> Path:
    """Write a wheel of one file; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        archive.writestr("horovod/x.so", content)
        archive.writestr("horovod-0.19.5.dist-info/WHEEL", "Tag: cp36-cp36m-linux_x86_64\n")
    return folder


@pytest.fixture
def store(tmp_path: Path) -> WheelStore:
    return WheelStore(tmp_path)


def test_what_was_adopted_is_found(store: WheelStore, tmp_path: Path) -> None:
    assert store.find("a" * 64) is None
    store.adopt("a" * 64, make_wheel(tmp_path / "out"))
    folder = store.find("a" * 64)
    assert folder
    assert [path.name for path in folder.iterdir()] == [WHEEL]
    store.adopt("b" * 64, tmp_path / "absent")
    assert store.find("b" * 64) is None
    cut = make_wheel(tmp_path / "cut") / WHEEL
    cut.write_bytes(cut.read_bytes()[:-30])
    store.adopt("b" * 64, cut.parent)
    assert store.find("b" * 64) is None


@pytest.mark.parametrize("damage", ["cut", "garbled", "emptied", "another file"])
def test_a_damaged_wheel_counts_as_missing_and_is_replaced(
    store: WheelStore, tmp_path: Path, damage: str
) -> None:
    store.adopt("a" * 64, make_wheel(tmp_path / "out", content=bytes(5000)))
    folder = store.find("a" * 64)
    assert folder
    wheel = folder / WHEEL
    data = wheel.read_bytes()
    if damage == "cut":
        wheel.write_bytes(data[:-10])
    elif damage == "garbled":
        wheel.write_bytes(data[:2000] + b"\xff" + data[2001:])
    elif damage == "emptied":
        wheel.unlink()
    else:
        (folder / "horovod-0.0.0-cp36-cp36m-linux_x86_64.whl").write_bytes(b"")
    assert store.find("a" * 64) is None
    store.adopt("a" * 64, make_wheel(tmp_path / "out", content=bytes(5000)))
    assert store.find("a" * 64) == folder


@pytest.mark.parametrize("folder", ["horovod-1.0", "../horovod-1.0", "/tmp/horovod-1.0"])  # noqa: S108
def test_a_wheel_has_a_plain_file_name_or_none(tmp_path: Path, folder: str) -> None:
    with zipfile.ZipFile(tmp_path / "wheel", "w") as archive:
        archive.writestr(f"{folder}.dist-info/WHEEL", "Tag: py3-none-any\n")
    name = wheel_file_name(tmp_path / "wheel")
    assert name == ("horovod-1.0-py3-none-any.whl" if folder == "horovod-1.0" else None)
    assert wheel_file_name(BytesIO(b"no archive")) is None
    assert wheel_file_name(make_wheel(tmp_path / "whole") / WHEEL) == WHEEL


@pytest.fixture
def checkout(project: Project, tmp_path: Path) -> Project:
    """Return a copy of what a wheel's key is made of."""
    copied = tmp_path / "checkout"
    for name in ("files", "locks", "templates"):
        shutil.copytree(project.root / "images" / name, copied / "images" / name)
    (copied / "matrix.yaml").symlink_to(project.matrix)
    return Project(copied)


def _key(made: Bench, project: Project, image: Image | None = None) -> str:
    context = replace(made.context, project=project)
    key = wheel_key(image or context.images[1], context)
    assert key
    return key


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        (("HOROVOD_BUILD_ARCH_FLAGS=-mavx", "HOROVOD_BUILD_ARCH_FLAGS=-mavx2"), True),
        (("horovod==0.19.5", "horovod==0.19.4"), True),
        (("'g++'", "'g++-11'"), True),
        (("# What TensorFlow's own wheels", "# Another comment"), False),
        (("'openssh-server'", "'dropbear'"), False),
        (("useradd --uid 1000", "useradd --uid 1001"), False),
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
    changed = read_dockerfile(text.replace(*change))
    monkeypatch.setattr("imgbuild.build.horovod_wheels.render_dockerfile", lambda *_: changed)
    assert (_key(bench, project) != before) is matters


@pytest.mark.parametrize(
    ("name", "old", "matters"),
    [
        ("lock", "tensorflow-cpu==", True),
        ("lock", "numpy==", True),
        ("lock", "werkzeug==", False),
        ("lock", "grpcio==", False),
        ("check_compiler.py", "\n", True),
        ("parallel/sitecustomize.py", "\n", True),
        ("ssh/ssh_config", "\n", False),
    ],
)
def test_of_the_lock_and_the_files_only_what_it_is_compiled_with_matters(
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


def test_a_bake_that_fails_keeps_the_wheels_that_it_finished(bench: Bench) -> None:
    with suppress(ZeroDivisionError), open_wheels(bench.context.images, bench.context) as wheels:
        assert ([*wheels.missing], wheels.context(OLD)) == ([OLD, NEW], {})
        make_wheel(wheels.exports / OLD)
        raise ZeroDivisionError
    with open_wheels(bench.context.images, bench.context) as wheels:
        assert [*wheels.missing] == [NEW]
        (folder,) = wheels.context(OLD).values()
        assert (folder / WHEEL).is_file()


def test_the_build_takes_kept_wheels_and_exports_the_others(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from imgbuild.engine.bake import BakeTarget

    seen: list[list[BakeTarget]] = []

    def bake(buildx: object, host: object, targets: list[BakeTarget], **more: object) -> object:
        seen.append(targets)
        for target in targets:
            if target.target == "horovod-wheel" and target.output.startswith("type=local"):
                make_wheel(Path(target.output.partition("dest=")[2]))
        return bench.bake(buildx, host, targets, **more)

    monkeypatch.setattr("imgbuild.build.one_bake.run_bake", bake)
    bench.build(test=False)
    assert [t.name for t in seen[0]] == [OLD, NEW, f"{OLD}-horovod-wheel", f"{NEW}-horovod-wheel"]
    bench.engine.stored.clear()
    bench.build(test=False)
    assert [target.name for target in seen[1]] == [OLD, NEW]
    assert all("horovod-wheel" in target.contexts for target in seen[1])
