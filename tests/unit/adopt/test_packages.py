"""The request for packages: lines of files, imports, and packages that these need."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Literal

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from imgbuild.adopt.closure import Closure, Entry
from imgbuild.adopt.package_tables import DISTRIBUTIONS, KNOWN_PACKAGES, OWN_NAMES, TOOLS
from imgbuild.adopt.packages import (
    PackageRequest,
    adapt_base,
    find_distribution,
    first_day,
    request_packages,
    system_packages,
)
from imgbuild.adopt.repository import Evidence
from imgbuild.adopt.source_facts import Import, SourceFacts
from imgbuild.adopt.statements import RequestedLine
from imgbuild.core.project import Project
from imgbuild.extend.base_image import BaseImage, family_base
from imgbuild.matrix.images import Image
from support.project_copy import ROOT

PACKAGES = {"numpy": "1.18.5", "six": "1.17.0", "tensorflow-cpu": "1.15.5", "tensorflow": "1.15.5"}
BOUNDS = {"six": ">=1.10", "keras": ">=2.2,<2.4", "tensorflow-addons": "<0"}
BASE = BaseImage(
    "tf-1.15", "tf:1.15", "3.6.15", "2.36", "debian-12", PACKAGES, ("tensorflow",), bounds=BOUNDS
)
SOURCE = SourceFacts("train.py")


def closure(*modules: str, source: SourceFacts = SOURCE, package_name: str = "") -> Closure:
    """Return a closure with imports; ``?`` marks an optional one, and ``~`` a wanted one."""
    kinds: dict[str, Literal["optional", "wanted"]] = {"?": "optional", "~": "wanted"}
    imports = []
    for line, text in enumerate(modules, 1):
        module = text.lstrip("?~")
        imported = Import(module, 0, (), line, kinds.get(text[0], "required"))
        imports.append((imported, Evidence("train.py", line)))
    entry = Entry("train.py", Evidence("README.md", 3))
    return Closure(entry, (source,), tuple(imports), package_name=package_name)


def request(
    lines: Sequence[str] = (), program: Closure | None = None, base: BaseImage = BASE
) -> PackageRequest:
    requested = [
        RequestedLine(text, Evidence("requirements.txt", number))
        for number, text in enumerate(lines, 1)
    ]
    return request_packages(requested, program or closure(), base)


def reason(made: PackageRequest, subject: str) -> str:
    """Return why a line or a module is left out."""
    (decision,) = [decision for decision in made.decisions if decision.subject == subject]
    assert decision.value == "left out"
    assert decision.evidence
    return decision.reason


def test_request_keeps_pins_of_other_packages() -> None:
    made = request(["tqdm==4.19.5", "requests>=2,<3", "gym[atari]==0.12.1"])
    assert made.requirements == ("tqdm==4.19.5", "requests<3,>=2", "gym[atari]==0.12.1")
    assert made.decisions == ()


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("tqdm=4.19.5", "tqdm==4.19.5"),
        ("tqdm-4.19.5", "tqdm==4.19.5"),
        ("tqdm 4.19.5", "tqdm==4.19.5"),
        ("tqdm=>4.19", "tqdm>=4.19"),
        ("absl==0.7.1", "absl-py==0.7.1"),
        ("PIL", "Pillow"),
        ("keras==2.4.3", "keras"),
        ("scipy==0.19.1", "scipy"),
        ("pandas==0.22", "pandas"),
    ],
)
def test_request_repairs_lines(line: str, meant: str) -> None:
    made = request([line])
    assert made.requirements == (meant,)
    (decision,) = made.decisions
    assert decision[:2] == (line, meant)
    assert decision.evidence == (Evidence("requirements.txt", 1),)


@pytest.mark.parametrize(
    "line",
    [
        *("-e .", "-e git+https://example.invalid/a.git#egg=a", "git+ssh://git@example.invalid/a"),
        *("./vendor/a", "../a.whl", "https://example.invalid/a.tar.gz", "a @ https://[broken"),
        *("--index-url https://example.invalid/simple", "--pre", "-f links", "a b c", "=1.0", "@"),
        *("argparse", "logging", "uuid==1.30", "enum34", "futures==3.2.0", "dataclasses"),
        *("backports.weakref==1.0", "mkl-fft==1.0.6", "pywin32==224", "pkg-resources==0.0.0"),
        *("pylint==2.4", "pytest", "setuptools==40", "six==1.9", "numpy==1.14.2"),
        *("tensorflow", "tensorflow_gpu==1.3.0", "tensorflow==2.9.1", "tf-nightly", "horovod"),
        *("tensorboard==1.4", "tensorflow-addons", 'a; python_version < "3"', "a; os_name == 'nt'"),
        *('a; extra == "x"', 'a; python_version < "x.y"', "a==" + "9" * 5000, "a" * 3000, "é==1"),
        *("a;" + "(" * 1500, "\x1b[31m", "a\u202e==1", "a==1; nothing == 2", ""),
        *("a==1; 'x' in extras", "torch_cpu.whl"),
    ],
)
def test_request_leaves_out_lines(line: str) -> None:
    base = replace(BASE, packages={**PACKAGES, "dataclasses": "0.8"})
    made = request([line], base=base)
    assert made.requirements == ()
    quiet = line == "dataclasses"  # the image has it in the version that is asked for
    assert len(made.decisions) == (0 if quiet else 1)
    for decision in made.decisions:
        assert decision.value == "left out"
        assert decision.reason
        assert decision.subject.isprintable()
        assert len(decision.subject) <= 101


def test_request_has_a_limit_of_lines() -> None:
    made = request(["a b c"] * 501)
    assert made.decisions[0].reason == "only 500 lines are read"
    assert len(made.decisions) == 501


def test_request_names_no_logins() -> None:
    made = request(["git+https://me:secret@example.invalid/a.git"])
    assert "secret" not in str(made.decisions)


def test_request_drops_pins_with_numpys() -> None:
    lines = ["numpy==1.16.4", "scipy==1.3.1", "pandas==0.20.3", "matplotlib==3.1.1", "tqdm==4.36"]
    made = request(lines)
    assert made.requirements == ("scipy<=1.3.1", "pandas", "matplotlib<=3.1.1", "tqdm==4.36")
    assert [decision.subject for decision in made.decisions] == lines[:4]
    fitting = request(["numpy==1.18.5", *lines[1:]])
    assert fitting.requirements == ("scipy==1.3.1", "pandas", "matplotlib==3.1.1", "tqdm==4.36")


def test_request_keeps_first_line_of_a_package() -> None:
    made = request(["tqdm==4.2", "tqdm==4.3", "tqdm", "gym", "gym==0.9"])
    assert made.requirements == ("tqdm==4.2", "gym==0.9")
    assert "requirements.txt:1" in reason(made, "tqdm==4.3")


def test_request_keeps_tools_that_are_imported() -> None:
    assert request(["pytest==5.0"], closure("pytest")).requirements == ("pytest==5.0",)


def test_request_backports_follow_python() -> None:
    newer = replace(BASE, python="3.8.18")
    lines = ["contextvars", "dataclasses"]
    assert request(lines).requirements == ("contextvars", "dataclasses")
    assert request(lines, base=newer).requirements == ()


def test_request_adds_imports() -> None:
    made = request((), closure("numpy", "tensorflow.keras", "sklearn.svm", "PIL", "oyaml"))
    assert made.requirements == ("scikit-learn", "Pillow", "oyaml", "scipy")
    assert made.modules["sklearn"] == "scikit-learn"
    assert [decision.value for decision in made.decisions] == ["added"] * 3
    assert made.decisions[0].evidence == (Evidence("train.py", 3),)


def test_request_orders_optional_imports() -> None:
    made = request(["tqdm", "wget"], closure("yaml", "?oyaml", "~wandb", "tqdm"))
    assert made.optional == ("wget", "oyaml", "wandb")
    assert set(made.requirements) == {"tqdm", "wget", "PyYAML", "oyaml", "wandb"}


def test_request_asks_no_index_for_unknown_names() -> None:
    program = closure("armworld.envs", "~lab_tools", "?MPI", "tqdm")
    made = request(["tqdm"], program)
    assert made.requirements == ("tqdm",)
    assert "imgbuild.adopt.yaml" in reason(made, "armworld")
    assert "MPI" not in [decision.subject for decision in made.decisions]
    named = request_packages([], program, BASE, ["armworld"])
    assert named.requirements == ("armworld", "tqdm")


def test_request_of_a_whole_environment_follows_imports() -> None:
    frozen = [f"lib{number}==1.{number}" for number in range(30)]
    made = request([*frozen, "tqdm==4.19.5", "h5py==2.8"], closure("tqdm"))
    assert made.requirements == ("tqdm==4.19.5", "h5py==2.8")
    (decision,) = made.decisions
    assert "lib0" in decision.subject
    assert "24 more" in decision.subject
    short = request([*frozen[:9], "tqdm==4.19.5"], closure("tqdm"))
    assert len(short.requirements) == 10
    assert len(short.optional) == 9


def test_request_constraints_follow_imports() -> None:
    lines = [
        RequestedLine(text, Evidence("Dockerfile", 3), constrains=True)
        for text in ("tqdm==4.19.5", "rsa==3.4.2", "numpy==1.2")
    ]
    assert request_packages(lines, closure("tqdm"), BASE).requirements == ("tqdm==4.19.5",)
    opencv = [lines[0]._replace(text="opencv-contrib-python==4.1.2")]
    assert request_packages(opencv, closure("cv2"), BASE).requirements == (
        "opencv-contrib-python-headless==4.1.2",
    )


def test_request_notebook_tools_are_for_notebooks() -> None:
    program, line = closure("tqdm"), "jupyter==1.0.0"
    assert request([line], program).requirements == ("tqdm",)
    notebook = replace(program, entry=replace(program.entry, is_notebook=True))
    assert line in request([line], notebook).requirements
    assert line in request([line, "ipython"], closure("IPython", "jupyter")).requirements


def test_request_looks_up_no_local_names() -> None:
    modules = ("utils", "models", "caffe", "cPickle", "?StringIO", "object_detection", "me")
    made = request((), closure(*modules, package_name="me"))
    assert made.requirements == ()
    assert {decision.subject for decision in made.decisions} >= {"utils", "caffe", "cPickle"}
    assert reason(made, "me") == "it is this repository"
    assert "StringIO" not in [decision.subject for decision in made.decisions]


def test_request_skips_invalid_module_names() -> None:
    made = request((), closure("модуль", "_private", "a" * 3000))
    assert all(Requirement(text).name.isascii() for text in made.requirements)


def test_request_knows_what_no_release_fits() -> None:
    made = request((), closure("tensorflow_addons"))
    assert made.requirements == ()
    assert "1.15.5" in reason(made, "tensorflow_addons")


def test_request_uses_opencv_without_windows() -> None:
    made = request(["opencv-python==4.1.2.30"], closure("cv2"))
    assert made.requirements == ("opencv-python-headless==4.1.2.30",)
    assert "opencv-python=opencv-python-headless" in made.overrides
    assert made.apt == ("libglib2.0-0",)
    assert request((), closure("cv2")).requirements == ("opencv-python-headless",)
    contrib = request(["opencv-contrib-python"], closure("cv2"))
    assert contrib.requirements == ("opencv-contrib-python-headless",)
    assert "opencv-python=opencv-contrib-python-headless" in contrib.overrides


def test_request_keeps_opencv_with_windows() -> None:
    shows = replace(SOURCE, windows=(7,))
    for lines in (["opencv-python"], []):
        made = request(lines, closure("cv2", source=shows))
        assert made.requirements == ("opencv-python",)
        assert made.overrides == ()
        assert "libgl1" in made.apt


def test_request_bounds_scipy_misc() -> None:
    old = replace(SOURCE, scipy_misc=(9,))
    made = request((), closure("scipy.misc", source=old))
    assert made.requirements == ("scipy", "pillow")
    assert made.constraints == ("scipy<1.3",)
    pinned = request(["scipy==1.4.1", "Pillow==5.0"], closure("scipy", source=old))
    assert pinned.requirements == ("scipy", "Pillow==5.0")
    kept = request(["scipy==1.2.1"], closure("scipy", source=old))
    assert kept.requirements == ("scipy==1.2.1", "pillow")
    newer = request((), closure("scipy", source=old), replace(BASE, python="3.8.18"))
    assert newer.constraints == ()
    assert any(decision.against for decision in newer.decisions)


def test_request_system_libraries() -> None:
    drawing = replace(SOURCE, renders=(4,))
    assert "xvfb" in request((), closure("gym", source=drawing)).apt
    assert request((), closure("gym")).apt == ()
    sound = request((), closure("pyaudio", "soundfile"))
    assert sound.optional == ("pyaudio",)
    assert sound.apt == ("libportaudio2", "libsndfile1")
    assert "portaudio19-dev" in sound.build_apt
    assert system_packages(["librosa", "soundfile"]) == ("libsndfile1",)


@pytest.mark.parametrize(
    ("module", "distribution"),
    [
        ("cv2", "opencv-python-headless"),
        ("google.protobuf.text_format", "protobuf"),
        ("google.cloud.storage", "google-cloud-storage"),
        ("mpl_toolkits.mplot3d", "matplotlib"),
        ("tensorflow_probability", "tensorflow-probability"),
        ("tqdm", "tqdm"),
    ],
)
def test_distribution_of_a_module(module: str, distribution: str) -> None:
    assert find_distribution(module) == distribution


def test_tables_contain_valid_names() -> None:
    for name in {*DISTRIBUTIONS.values(), *TOOLS, *KNOWN_PACKAGES}:
        assert Requirement(name).name == name
    assert {canonicalize_name(name) for name in KNOWN_PACKAGES} == KNOWN_PACKAGES
    assert OWN_NAMES.isdisjoint(DISTRIBUTIONS)


def test_first_days_follow_floors_and_wheels() -> None:
    newer, wheels = replace(BASE, python="3.8.18"), date(2020, 1, 15)
    assert first_day("scipy", BASE) == date(2018, 5, 6)
    assert [first_day(name, newer) for name in ("scipy", "pillow", "tqdm")] == [
        wheels,
        wheels,
        None,
    ]
    least = replace(BASE, packages={"numpy": "1.18.0"})
    assert adapt_base(least).bounds["scipy"] == ">=1.1"


def test_bounds_of_images_of_the_matrix(images: dict[str, Image]) -> None:
    project = Project(ROOT)
    for minor, sonnet, scipy in (
        ("1.10", "<2", None),
        ("1.15", "<2", ">=1.1"),
        ("2.6", ">=2", ">=1.1"),
        ("2.21", ">=2", ">=1.13"),
    ):
        base = adapt_base(family_base(images[f"tf-{minor}-cpu-debian"], project))
        assert base.bounds["dm-sonnet"] == sonnet
        assert base.bounds.get("scipy") == scipy
        assert "cloudpickle" in base.movable
        assert adapt_base(base) == base
