"""Conda files: what pip gets of them, what the image answers, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.extend.base_image import BaseImage, family_base
from imgbuild.extend.conda_file import CondaPackages
from imgbuild.extend.extension import parse_extension, read_conda_packages, requested_lines
from imgbuild.extend.requirement_files import judge_lines
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.selection import find_image
from support.project_copy import ROOT

PYTHON = "3.6.15"
EXPORTED = """\
name: train
channels: [defaults]
dependencies:
  - _libgcc_mutex=0.1=main
  - absl-py=0.9.0=py36_0
  - blas=1.0=mkl
  - c-ares=1.15.0=h7b6447c_1001
  - numpy-base=1.18.5=py36hde5b4d6_1
  - openssl=1.1.1f=h7b6447c_0
  - pandas=1.0.3=py36h0573a6f_0
  - pip=20.0.2=py36_1
  - python=3.6.10=hcf32534_1
  - setuptools=46.1.3=py36_0
  - tensorflow=1.15.5=mkl_py36h4920b83_0
  - zlib=1.2.11=h7b6447c_3
  - pip:
    - tqdm==4.45.0
variables:
  TF_CPP_MIN_LOG_LEVEL: "2"
prefix: /home/me/miniconda3/envs/train
"""
LISTED = "_libgcc_mutex=0.1=main\npandas=1.0.3=py36h0573a6f_0\ntqdm=4.45.0=pypi_0\n"
EXPLICIT = """\
https://repo.anaconda.com/pkgs/main/linux-64/_libgcc_mutex-0.1-main.conda
https://conda.anaconda.org/conda-forge/linux-64/pandas-1.0.3-py36h83a9950_1.tar.bz2#0a
https://conda.anaconda.org/conda-forge/noarch/tqdm-4.45.0-pyh9f0ad1d_0.tar.bz2
"""
Read = Callable[[str], CondaPackages]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(text: str) -> CondaPackages:
        (tmp_path / "environment.yml").write_text(text, encoding="utf-8")
        extension = parse_extension({"conda_file": "environment.yml"})
        return read_conda_packages(extension, tmp_path, PYTHON)

    return read


def with_entries(*entries: str) -> str:
    return "\n".join(["name: train", "dependencies:", *(f"- {entry}" for entry in entries), ""])


def lines(packages: CondaPackages) -> list[str]:
    return [line.text for line in packages.lines]


def test_an_exported_environment(read: Read) -> None:
    found = read(EXPORTED)
    own = ["absl-py==0.9.0", "pandas==1.0.3", "tensorflow==1.15.5", "tqdm==4.45.0"]
    assert lines(found) == own
    alone = ["_libgcc_mutex", "blas", "c-ares", "numpy-base", "openssl", "zlib"]
    assert found.skipped == alone
    assert found.variables == {"TF_CPP_MIN_LOG_LEVEL": "2"}
    (note,) = found.notes(base("tf-1.15-cpu-debian"))
    assert all(name in note for name in alone)


def base(name: str) -> BaseImage:
    project = Project(ROOT)
    return family_base(find_image(load_matrix(project.matrix), name), project)


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ("pandas=1.1", "pandas==1.1.*"),
        ("scikit-learn==0.24.2", "scikit-learn==0.24.2"),
        ("conda-forge::tqdm>=4,<5", "tqdm<5,>=4"),
        ("conda-forge/linux-64::tqdm", "tqdm"),
        ("matplotlib=3.3.4=py36h_0", "matplotlib==3.3.4"),
        ("pillow 8.*", "pillow==8.*"),
        ("pandas 1.1.5 py36ha9443f7_0", "pandas==1.1.5"),
        ("pandas[version='>=1.0,<2']", "pandas<2,>=1.0"),
        ("tensorflow=*=mkl_py36*", "tensorflow"),
        ("h5py=2.10.0=nompi_*", "h5py==2.10.0"),
        ("librosa=0.8", "librosa==0.8.*"),
        ("tensorflow-gpu=1.13.1=h0d30ee6_0", "tensorflow-gpu==1.13.1"),
        ("keras-gpu=2.2.4=0", "keras==2.2.4"),
        ("matplotlib-base=3.2.0", "matplotlib==3.2.0.*"),
        ("msgpack-python=1.0.2=py36hff7bd54_1", "msgpack==1.0.2"),
        ("opencv=4.5", "opencv-python-headless==4.5.*"),
        ("py-opencv=3.4.2=py36hb342d67_1", "opencv-python-headless==3.4.2.*"),
        ("pytables=3.6.1", "tables==3.6.1.*"),
        ("pytorch=1.4.0=py3.7_cuda10.1.243_cudnn7.6.3_0", "torch==1.4.0"),
        ("python-graphviz", "graphviz"),
        ("Pillow=8.1", "pillow==8.1.*"),
        ("chardet=3.0.4=pypi_0", "chardet==3.0.4"),
        ("pip: [keras==2.3.1]", "keras==2.3.1"),
    ],
)
def test_a_package_by_the_name_that_pip_knows(read: Read, entry: str, line: str) -> None:
    assert lines(read(with_entries(entry))) == [line]


@pytest.mark.parametrize(
    "entry", ["python=3.6", "python=3", "python==3.6.2", "python=3.6.10", "python>=3.6,<3.8"]
)
def test_the_same_minor_of_python_is_accepted(read: Read, entry: str) -> None:
    assert lines(read(with_entries(entry, "pip", "pip=20.0.2"))) == []


def test_keep_image_puts_another_python_aside(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text(with_entries("python=3.7", "tqdm"))
    extension = parse_extension({"conda_file": "environment.yml", "keep_image": True})
    found = read_conda_packages(extension, tmp_path, PYTHON)
    assert lines(found) == ["tqdm"]
    (note,) = found.notes(base("tf-2.2-cpu-debian"))
    assert "3.7" in note
    assert PYTHON in note


@pytest.mark.parametrize(
    "entry",
    [
        "libgcc-ng=9.1.0=hdf63c60_0",
        "_tflow_select=2.3.0=mkl",
        "anaconda=custom=py36hbbc8b67_0",
        "expat=2.2.6",
        "mkl_fft=1.0.15=py36ha843d7b_0",
        "tensorflow-base=1.15.0=mkl_py36he1670d9_0",
        "some-library=1.0=h7b6447c_0",
        "vs2015_runtime=14.16.27012=hf0eaf9b_1",
        "gxx_linux-64=7.3.0=h553295d_17",
        "jpeg=9b=h024ee3a_2",
        "ffmpeg",
    ],
)
def test_a_package_of_conda_alone_is_passed_over(read: Read, entry: str) -> None:
    found = read(with_entries(entry, "tqdm"))
    assert lines(found) == ["tqdm"]
    assert found.skipped == [entry.partition("=")[0]]


def test_cuda_and_mpi_are_the_images(read: Read) -> None:
    found = read(with_entries("cudatoolkit=10.1", "cudnn=7.6.5=cuda10.1_0", "nccl", "openmpi=3"))
    assert (lines(found), found.skipped) == ([], [])
    (gpu,) = found.notes(base("tf-2.2-gpu-ubuntu"))
    assert "cudatoolkit=10.1, cudnn=7.6.5=cuda10.1_0, nccl, openmpi=3: " in gpu
    assert "openmpi-3.1.2, CUDA 10.1" in gpu
    (cpu,) = found.notes(base("tf-2.2-cpu-debian"))
    assert "openmpi-4.1.4 and no CUDA (--gpu" in cpu


def test_a_program_is_named_with_debians_package(read: Read) -> None:
    notes = [*read(with_entries("tesseract", "ffmpeg=4.2")).notes(base("tf-2.2-cpu-debian"))]
    assert notes[-1].endswith("--apt tesseract-ocr --apt ffmpeg")


def test_parts_of_one_distribution_are_one_requirement(read: Read) -> None:
    parts = ("keras-base=2.2.4=py36_0", "keras-gpu=2.2.4=0", "prompt-toolkit=3.0.4=py_0")
    found = read(with_entries(*parts, "prompt_toolkit=3.0.4=0", "opencv", "py-opencv"))
    assert lines(found) == ["keras==2.2.4", "prompt-toolkit==3.0.4", "opencv-python-headless"]
    found = read(with_entries("opencv", "pip: [opencv-python==4.1.1.26]"))
    assert lines(found) == ["opencv-python==4.1.1.26"]


@pytest.mark.parametrize(
    "text",
    ["# platform: linux-64\n" + LISTED, "@EXPLICIT\n" + EXPLICIT],
)
def test_a_list_that_conda_exported(read: Read, text: str) -> None:
    found = read(text)
    assert lines(found) == ["pandas==1.0.3", "tqdm==4.45.0"]
    assert found.skipped == ["_libgcc_mutex"]


def test_a_file_of_powershell(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text(EXPORTED, encoding="utf-16")
    extension = parse_extension({"conda_file": "environment.yml"})
    assert read_conda_packages(extension, tmp_path, PYTHON).variables


def test_a_pip_section_is_a_requirements_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "requirements.txt").write_text("tqdm==4.45.0\n")
    text = with_entries("pandas", "pip: ['-r requirements.txt', keras==2.3.1]")
    (tmp_path / "sub" / "environment.yml").write_text(text)
    extension = parse_extension({"conda_file": "sub/environment.yml"})
    conda = read_conda_packages(extension, tmp_path, PYTHON)
    requests = requested_lines(extension, tmp_path, conda)
    found = judge_lines(requests, base("tf-2.2-cpu-debian"), tmp_path, lambda _: None)
    assert found == ("pandas", "tqdm==4.45.0", "keras==2.3.1")


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("python=3.8", "4:3: 'python=3.8': the base has Python 3.6.15"),
        ("python==3.7.6=h0", "4:3: 'python==3.7.6=h0': the base has Python 3.6.15"),
        ("a=1|2", "4:3: 'a=1|2': not a package of conda"),
        ("python=3..6", "4:3: 'python=3..6': not a package of conda"),
        ("a=1..2", "4:3: 'a=1..2': not a package of conda"),
        ("[a]", "4:3: an entry must be text"),
        ("{pips: [a]}", "4:3: missing key 'pip'"),
        ("pip: [a, './b']", "4:12: './b' is not a requirement"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_line(read: Read, entry: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        read(with_entries("keras", entry))
    assert str(error.value).startswith(f"environment.yml:{says}")


@pytest.mark.parametrize("variables", ["{1A: x}", '{A: "b\\nUSER 0"}', "{'A B': x}", "[A]"])
def test_a_variable_is_checked_as_env_is(read: Read, variables: str) -> None:
    with pytest.raises(InputError, match=r"^environment.yml:4:"):
        read(f"{with_entries('keras')}variables: {variables}\n")


def test_every_fault_is_named(read: Read) -> None:
    with pytest.raises(InputError) as error:
        read(with_entries("python=3.8", "keras", "a=1|2", "pip: [-e .]"))
    *faults, last = str(error.value).splitlines()
    assert [fault.split(": ")[0] for fault in faults] == [
        *("environment.yml:3:3", "environment.yml:5:3", "environment.yml:6:9"),
    ]
    assert last.endswith("3 faults; nothing was done.")


@pytest.mark.parametrize("options", [{}, {"keep_image": True}])
def test_a_version_without_end_is_refused(tmp_path: Path, options: dict[str, bool]) -> None:
    (tmp_path / "list.txt").write_text(f"python={'9' * 5000}=py\npandas=1.0=py36_0\n")
    extension = parse_extension({"conda_file": "list.txt", **options})
    with pytest.raises(InputError, match=r"^list\.txt:1:1: "):
        read_conda_packages(extension, tmp_path, PYTHON)
