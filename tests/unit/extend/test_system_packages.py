"""Packages of the system for another Python than the image's are refused."""

from dataclasses import replace

import pytest

from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.extend.base_image import BaseImage, family_base
from imgbuild.extend.system_packages import check_apt
from imgbuild.matrix.images import Image

OWN, SYSTEM = "tf-2.2-cpu-debian", "tf-2.15-cpu-debian"


@pytest.fixture
def bases(images: dict[str, Image], project: Project) -> dict[str, BaseImage]:
    return {name: family_base(images[name], project) for name in (OWN, SYSTEM)}


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("python3-lxml", "python3-lxml: use --pip lxml"),
        ("python3-pil=9.4.0-1.1", "python3-pil=9.4.0-1.1: use --pip pillow"),
        ("python-opencv", "python-opencv: use --pip opencv-python-headless"),
        ("python3-tk", "python3-tk: these images have no tkinter"),
        ("python3-pip", "python3-pip: the image has it"),
        ("python3", "python3: the image has its own Python"),
        ("python3.11-dev", "python3.11-dev: the image has its own Python"),
        ("libpython3.11", "libpython3.11: the image has its own Python"),
        ("libpython3-dev", "libpython3-dev: the image has its own Python"),
    ],
)
def test_packages_of_another_python_are_refused(
    bases: dict[str, BaseImage], name: str, way: str
) -> None:
    with pytest.raises(InputError) as told:
        check_apt(["git", name], bases[OWN])
    assert way in str(told.value)
    assert "git" not in str(told.value)


def test_all_packages_of_another_python_are_named(bases: dict[str, BaseImage]) -> None:
    with pytest.raises(InputError, match=r"python3-tk: .*; python3-lxml: "):
        check_apt(["python3-tk", "python3-lxml"], bases[OWN])


def test_other_packages_of_the_archive_are_fine(bases: dict[str, BaseImage]) -> None:
    check_apt(["libsndfile1", "g++", "libboost-python1.74.0", "mypython", "ipython3"], bases[OWN])


def test_parts_of_the_systems_python_fit_an_image_of_it(bases: dict[str, BaseImage]) -> None:
    check_apt(["python3-tk", "python3-gdbm", "python3-venv"], bases[SYSTEM])
    with pytest.raises(InputError, match="python3-lxml: use --pip lxml"):
        check_apt(["python3-lxml"], bases[SYSTEM])


def test_foreign_bases_may_have_the_systems_python(bases: dict[str, BaseImage]) -> None:
    check_apt(["python3-lxml"], replace(bases[OWN], image=None))
