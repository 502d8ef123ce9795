"""Every way in which matrix.yaml can be wrong is refused, with its place and what is allowed."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from imgbuild.project import Project

Edited = Callable[..., Path]
Refusal = Callable[[Path], str]


def test_the_committed_matrix_has_the_ten_versions(matrix: Matrix) -> None:
    minors = [row.tensorflow.rsplit(".", 1)[0] for row in matrix.images if row.stack == "debian"]
    assert minors == ["1.10", "1.11", "1.12", "1.13", "1.14", "1.15", "2.0", "2.1", "2.2", "2.3"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("epoch:", "epohc:", "unknown key 'epohc'; allowed: build_requirements, constraints, cuda"),
        ("epoch:", "epohc:", "missing key 'epoch'"),
        ("variant: cpu}", "variant: tpu}", "'tpu' is not allowed; allowed: 'cpu' or 'gpu'"),
        ("git: 2.39.5", "git: latest", "'latest' is not a version"),
        ("git: 2.39.5", "git: [1]", "git must be a mapping"),
        ("      git: 2.39.5\n", "", "pin 'git' is missing; set it here or in stacks.debian.pins"),
        ("python: 3.6.15", "python: 3.6.2", "no Python '3.6.2' in the matrix; there are: 3.6.15"),
        ("mpi: openmpi-4.1.4", "mpi: openmpi-9", "no MPI 'openmpi-9' in the matrix"),
        ("horovod: 0.15.2", "horovod: 0.15.3", "no Horovod '0.15.3' in the matrix"),
        ("    os: debian-12\n    pins", "    os: beos\n    pins", "no operating system 'beos'"),
        ("source: cpython-3.6.15", "source: nowhere", "no source 'nowhere'"),
        ("stack: debian,", "stack: gentoo,", "no stack 'gentoo' in the matrix; there are: debian"),
        ("a227614135d91", "a227614135d9", "is not a sha256; allowed: 64 lower-case"),
        (
            "flavour: openmpi",
            "flavour: lam",
            "'lam' is not allowed; allowed: 'openmpi', 'intelmpi' or 'mpich'",
        ),
        ("variants: [cpu]", "variants: [gpu]", "pin 'cuda' is missing; the gpu variant needs it"),
        ("variants: [cpu]", "variants: [cpu, cpu]", "is already image 1 of the list"),
        (
            "tensorflow: 1.11.0, stack",
            "tensorflow: 1.10.0, stack",
            "is already image 1 of the list",
        ),
        ("cpu: tensorflow, gpu", "gpu", "tensorflow.1.10.0.distribution names no cpu"),
        ("from: source", "from: conda", "missing key 'packages'"),
        ("from: source", "from: tarball", "does not match any of the expected tags"),
        ("epoch: 2026-11-01", "epoch: 1900-11-01", "is not a UTC time from 1980 to 2105"),
        ("epoch: 2026-11-01", "epoch: 2026-13-45", "is not a UTC time from 1980 to 2105"),
        ("tensorflow: <1.12,", "tensorflow: <1.x2,", "'<1.x2' is not a version range"),
        ("require: pip==21.3.1", "require: pip==21.x.1", "'pip==21.x.1' is not a requirement"),
        ("wheel_tag: cp36", "wheel_tag: cp39", "allowed: 'cp36', 'cp37' or 'cp38'"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(
    edited: Edited, refusal: Refusal, old: str, new: str, expected: str
) -> None:
    message = refusal(edited(old, new))
    line = next(line for line in message.splitlines() if expected in line)
    place = line.split(": ", 1)[0].split(":")
    assert place[0] == "matrix.yaml"
    assert all(number.isdigit() for number in place[1:3])


def test_the_place_is_that_of_the_value(edited: Edited, refusal: Refusal) -> None:
    path = edited("git: 2.39.5", "git: latest")
    lines = path.read_text().splitlines()
    number = next(i for i, line in enumerate(lines, 1) if "git: latest" in line)
    column = lines[number - 1].index("git") + 1
    assert f"matrix.yaml:{number}:{column}: 'latest'" in refusal(path)


def test_all_faults_are_named_at_once(edited: Edited, refusal: Refusal) -> None:
    path = edited("git: 2.39.5", "git: latest")
    text = path.read_text().replace("epoch:", "epohc:").replace("glibc:", "libc:")
    path.write_text(text.replace("horovod: 0.16.4}", "horovod: 0.16.9}"))
    message = refusal(path)
    for part in ("'latest'", "'epohc'", "'epoch'", "'glibc'", "'libc'", "no Horovod '0.16.9'"):
        assert part in message
    assert "6 faults; nothing was done." in message


@pytest.mark.parametrize("section", ["stacks", "tensorflow", "horovod", "mpi", "python", "images"])
@pytest.mark.parametrize("value", ["words", "[a, b]", "{}"])
def test_a_section_of_another_kind_is_one_fault_not_a_crash(
    project: Project, tmp_path: Path, refusal: Refusal, section: str, value: str
) -> None:
    document = yaml.load(project.matrix.read_text(), Loader=yaml.CBaseLoader)  # noqa: S506 - no tags
    document[section] = yaml.load(value, Loader=yaml.CBaseLoader)  # noqa: S506 - no tags
    path = tmp_path / "matrix.yaml"
    path.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper))
    assert "matrix.yaml:" in refusal(path)


def test_a_wrong_item_does_not_make_the_list_short(edited: Edited, refusal: Refusal) -> None:
    message = refusal(edited("variants: [cpu]", "variants: [tpu]"))
    assert "at least" not in message


def test_a_key_set_twice_is_refused(edited: Edited, refusal: Refusal) -> None:
    assert "key 'repository' is already set on line" in refusal(
        edited("repository: imgbuild/tensorflow", "repository: a/b\nrepository: c/d")
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "matrix.yaml:2:1: not YAML"),
        ("a: b: c", "matrix.yaml:1:5: not YAML"),
        ("", "missing key 'images'"),
        ("- 1", "the document must be a mapping"),
        ("just words", "the document must be a mapping"),
        ("stacks: &a {x: 1}\nsources: *a", "aliases (*name) are not allowed"),
        ("stacks: &a [*a]", "aliases (*name) are not allowed"),
        ("? [a, b]\n: c", "a key must be a plain word"),
        ("a: !!python/object/apply:os.getcwd []", "tags (!name) are not allowed"),
        ("a: !mine b", "tags (!name) are not allowed"),
        ("a: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("images: 3", "images must be a list"),
        ("stacks: 3", "stacks must be a mapping"),
    ],
)
def test_what_is_not_a_matrix_is_refused(
    tmp_path: Path, refusal: Refusal, text: str, expected: str
) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(text)
    assert expected in refusal(path)


def test_bytes_that_are_not_text_are_refused(tmp_path: Path, refusal: Refusal) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in refusal(path)


def test_a_missing_file_is_refused(tmp_path: Path, refusal: Refusal) -> None:
    assert "No such file" in refusal(tmp_path / "matrix.yaml")


def test_versions_stay_text(edited: Edited) -> None:
    matrix = load_matrix(edited('glibc: "2.36"', "glibc: 2.10"))
    assert matrix.operating_systems["debian-12"].glibc == "2.10"


GPU_ROW = """images:
  - tensorflow: 2.1.0
    stack: ubuntu
    variants: [cpu, gpu]
    horovod: 0.19.1
    cuda: {version: "10.1", documented: "10.0", why: the wheel loads libcudart.so.10.1}
    cudnn: 7.6.3.30
    nccl: 2.4.8
"""
UBUNTU = """stacks:
  ubuntu:
    summary: Ubuntu 18.04 with conda, as documented.
    os: ubuntu-18.04
    pins:
      python: 3.6.2
      mpi: openmpi-3.1.2
      miniconda: miniconda-4.5.11
      git: {version: 2.17.1, documented: 2.7.4, why: Ubuntu 18.04 never had 2.7.4}
"""
TABLES = """operating_systems:
  ubuntu-18.04:
    distribution: ubuntu
    version: "18.04"
    suite: bionic
    glibc: "2.27"
    support: ended
    packages: {runtime: [zlib1g], compiler: [g++]}
"""


def test_the_schema_holds_what_the_gpu_images_need(edited: Edited) -> None:
    """CUDA, cuDNN, NCCL, conda, a compiled MPI, documented versus corrected pins."""
    path = edited("images:\n", GPU_ROW)
    sha = "a" * 64
    text = path.read_text().replace("stacks:\n", UBUNTU).replace("operating_systems:\n", TABLES)
    text = text.replace(
        "sources:\n",
        f"sources:\n  conda-python: {{url: 'https://example.org/p.bz2', sha256: {sha}}}\n"
        f"  ompi: {{url: 'https://example.org/o.gz', sha256: {sha}}}\n",
    )
    text = text.replace(
        "python:\n  3.6.15:",
        "python:\n  3.6.2: {from: conda, packages: [conda-python], wheel_tag: cp36}\n  3.6.15:",
    )
    text = text.replace(
        "mpi:\n  openmpi-4.1.4:",
        "mpi:\n  openmpi-3.1.2: {flavour: openmpi, version: 3.1.2, from: source, source: ompi}\n"
        "  openmpi-4.1.4:",
    )
    cuda = 'driver: "418.39", runtime: {ubuntu-18.04: [libnccl2=2.4.8-1+cuda10.1]}, build: {}'
    path.write_text(text + f'cuda:\n  "10.1": {{{cuda}}}\n')
    row = load_matrix(path).images[0]
    assert row.cuda is not None
    assert (row.cuda.version, row.cuda.documented) == ("10.1", "10.0")
