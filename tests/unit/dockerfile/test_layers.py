"""Locks in layers: each package in exactly one, and equal layers in one file."""

from pathlib import Path

import pytest

from imgbuild.dockerfile.lockfile import (
    layer_files,
    package_layers,
    read_lock,
    require_layer_as_named,
)
from imgbuild.errors import InputError
from imgbuild.matrix.images import Image
from imgbuild.project import Project


def test_images_whose_locks_agree_mount_one_file(
    images: dict[str, Image], project: Project
) -> None:
    def names(name: str) -> list[str]:
        return [layer.file_name for layer in package_layers(images[name], project.locks)]

    assert names("tf-2.2-cpu-debian") == names("tf-2.2-cpu-ubuntu")
    assert names("tf-2.2-cpu-debian")[:-1] == names("tf-2.3-gpu-ubuntu")[:-1]
    old, new = names("tf-1.12-cpu-debian"), names("tf-2.2-cpu-debian")
    assert old[0] == new[0]
    assert old[1] != new[1]  # another NumPy
    assert len(old) == 3  # no SciPy


def test_no_package_is_in_two_layers_and_each_entry_is_the_locks(
    images: dict[str, Image], project: Project
) -> None:
    for image in images.values():
        entries = read_lock(project.locks / image.lock_name).entries
        layers = package_layers(image, project.locks)
        packages = [package for layer in layers for package in layer.packages]
        assert len(packages) == len({*packages})
        for layer in layers:
            assert all(entries[package] in layer.text for package in layer.packages)
            assert layer.text.count("==") == len(layer.packages)


def test_every_entry_belongs_to_its_name(project: Project) -> None:
    path = project.locks / "tf-2.2.0-py3.6-cpu.txt"
    for name, entry in read_lock(path).entries.items():
        assert (
            entry.lower().replace("_", "-").startswith(f"{name}=={read_lock(path).versions[name]}")
        )


def test_the_committed_layers_are_those_of_the_locks(
    images: dict[str, Image], project: Project
) -> None:
    files = layer_files(images.values(), project.locks)
    assert {*files} == {*(project.locks / "layers").iterdir()}
    for path, text in files.items():
        assert path.read_text() == text


def test_a_missing_lock_is_named(images: dict[str, Image], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tf-2\.2\.0-py3\.6-cpu\.txt"):
        package_layers(images["tf-2.2-cpu-debian"], tmp_path)


def test_an_edited_layer_is_refused(project: Project, tmp_path: Path) -> None:
    (original, *_) = (project.locks / "layers").iterdir()
    path = f"locks/layers/{original.name}"
    require_layer_as_named(path, original)
    copy = tmp_path / original.name
    copy.write_text(original.read_text() + "evil==1.0\n")
    with pytest.raises(InputError, match="is not what its name says"):
        require_layer_as_named(path, copy)
    require_layer_as_named("locks/build-py3.6.txt", copy)
