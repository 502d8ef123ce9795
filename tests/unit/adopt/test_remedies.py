"""Packages that cure a failure, within the bounds of an image."""

import time

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from imgbuild.adopt import remedies
from imgbuild.adopt.failures import Start
from imgbuild.adopt.remedies import find_build_remedy, find_remedy
from imgbuild.locks.requirement_rules import ImageFacts

PACKAGES = {
    "tensorflow": "1.15.5+imgbuild",
    "numpy": "1.18.5",
    "h5py": "2.10.0",
    "protobuf": "3.19.6",
    "pyyaml": "5.4.1",
    "six": "1.17.0",
}
BOUNDS = {name: SpecifierSet(f"=={version}") for name, version in PACKAGES.items()}
COMPANIONS = {
    "tensorflow-probability": SpecifierSet(">=0.8,<0.9"),
    "tensorflow-addons": SpecifierSet("<0"),
    "keras": SpecifierSet(">=2.2,<2.4"),
}
IMAGE = ImageFacts(PACKAGES, {**BOUNDS, **COMPANIONS})
#: An image whose packages may all change.
FREE = ImageFacts({"numpy": "1.26.4", "h5py": "3.10.0", "protobuf": "5.1", "pyyaml": "6.0"}, {})


def fails(line: str = "", **facts: str) -> Start:
    return Start("fails", line=line, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "pip"),
    [
        ("tqdm", "tqdm"),
        ("cv2", "opencv-python-headless"),
        ("sklearn.svm", "scikit-learn"),
        ("PIL", "Pillow"),
        ("skimage.io", "scikit-image"),
        ("sonnet", "dm-sonnet"),
        ("keras", "keras<2.4,>=2.2"),
    ],
)
def test_missing_module_names_its_distribution(module: str, pip: str) -> None:
    start = fails(
        f"ModuleNotFoundError: No module named '{module}'", reason="missing module", missing=module
    )
    remedy = find_remedy(start, IMAGE)
    assert remedy
    (line,) = remedy.pip
    assert str(Requirement(line)) == str(Requirement(pip))


def test_own_module_is_not_replaced() -> None:
    start = fails(reason="missing module", missing="tqdm.auto")
    remedy = find_remedy(start, IMAGE, local_modules={"tqdm"})
    assert remedy
    assert remedy.pip == ()


@pytest.mark.parametrize("module", ["utils", "own.part", "ConfigParser", "yaml.none", "caffe"])
def test_missing_module_is_not_guessed(module: str) -> None:
    """The repository's own, Python 2's, one of the image's package, and one on no index."""
    start = fails(
        f"ModuleNotFoundError: No module named '{module}'", reason="missing module", missing=module
    )
    remedy = find_remedy(start, IMAGE, local_modules={"utils", "own"})
    assert remedy
    assert remedy.pip == remedy.apt == ()
    assert remedy.reason


@pytest.mark.parametrize(
    ("library", "apt"),
    [
        ("libGL.so.1", "libgl1"),
        ("libgthread-2.0.so.0", "libglib2.0-0"),
        ("libSM.so.6", "libsm6"),
        ("libXext.so.6", "libxext6"),
        ("libXrender.so.1", "libxrender1"),
        ("libsndfile.so.1", "libsndfile1"),
        ("libportaudio.so.2", "libportaudio2"),
        ("libgomp.so.1", "libgomp1"),
        ("libGLU.so.1", "libglu1-mesa"),
    ],
)
def test_missing_library_names_its_package(library: str, apt: str) -> None:
    remedy = find_remedy(fails(reason="missing library", missing=library), IMAGE)
    assert remedy
    assert (remedy.pip, remedy.apt) == ((), (apt,))


def test_opencv_needs_no_display() -> None:
    start = fails(reason="missing library", missing="libGL.so.1", package="cv2")
    remedy = find_remedy(start, IMAGE)
    assert remedy
    assert (remedy.pip, remedy.apt) == (("opencv-python-headless",), ("libglib2.0-0",))
    start = fails(reason="missing library", missing="libgthread-2.0.so.0", package="cv2")
    remedy = find_remedy(start, IMAGE)
    assert remedy
    assert (remedy.pip, remedy.apt) == ((), ("libglib2.0-0",))


def test_library_of_another_number_has_no_package() -> None:
    remedy = find_remedy(fails(reason="missing library", missing="libpng12.so.0"), IMAGE)
    assert remedy
    assert remedy.apt == ()
    assert find_remedy(fails(reason="missing library", missing="libunknown.so.1"), IMAGE) is None


def test_missing_program_names_its_package() -> None:
    remedy = find_remedy(fails(reason="missing program", missing="ffmpeg"), IMAGE)
    assert remedy
    assert remedy.apt == ("ffmpeg",)
    assert find_remedy(fails(reason="missing program", missing="unknown"), IMAGE) is None


@pytest.mark.parametrize(
    ("line", "pip"),
    [
        ("AttributeError: module 'scipy.misc' has no attribute 'imread'", "scipy<1.3 Pillow"),
        ("ImportError: cannot import name 'imresize'", "scipy<1.3 Pillow"),
        (
            "ImportError: cannot import name 'imsave' from 'scipy.misc' (/opt/x.py)",
            "scipy<1.3 Pillow",
        ),
        ("ImportError: cannot import name 'logsumexp' from 'scipy.misc' (/opt/x)", "scipy<1.3"),
        ("AttributeError: module 'scipy.misc' has no attribute 'comb'", "scipy<1.3"),
        ("ModuleNotFoundError: No module named 'numpy.testing.nosetester'", "scipy>=1.1"),
        ("ModuleNotFoundError: No module named 'sklearn.externals.joblib'", "scikit-learn<0.23"),
        (
            "ImportError: cannot import name 'joblib' from 'sklearn.externals' (/opt/x)",
            "scikit-learn<0.23",
        ),
        ("ModuleNotFoundError: No module named 'sklearn.cross_validation'", "scikit-learn<0.20"),
        ("ImportError: cannot import name 'rendering'", "gym<0.22"),
        ("AttributeError: 'Graph' object has no attribute 'node'", "networkx<2.4"),
        ("AttributeError: module 'networkx' has no attribute 'from_numpy_matrix'", "networkx<3"),
        ("TypeError: mel() takes 0 positional arguments but 2 were given", "librosa<0.10"),
        ("AttributeError: module 'sonnet' has no attribute 'AbstractModule'", "dm-sonnet<2"),
        ("ImportError: cannot import name 'PILLOW_VERSION' from 'PIL'", "Pillow<7"),
        (
            "ImportError: This version of TensorFlow Probability requires TensorFlow version >= 2",
            "tensorflow-probability>=0.8,<0.9",
        ),
        ("ImportError: Keras requires TensorFlow 2.2 or higher", "keras>=2.2,<2.4"),
        ("AttributeError: 'DataFrame' object has no attribute 'ix'", "pandas<1"),
    ],
)
def test_changed_interfaces_have_bounds(line: str, pip: str) -> None:
    remedy = find_remedy(fails(line), IMAGE)
    assert remedy
    assert [*map(Requirement, remedy.pip)] == [*map(Requirement, pip.split())]


@pytest.mark.parametrize(
    ("line", "pip"),
    [
        ("AttributeError: module 'numpy' has no attribute 'bool'", "numpy<1.24"),
        ("ValueError: Object arrays cannot be loaded when allow_pickle=False", "numpy<1.16.3"),
        ("TypeError: Descriptors cannot not be created directly.", "protobuf<3.21"),
        ("TypeError: Descriptors cannot be created directly.", "protobuf<3.21"),
        ("TypeError: load() missing 1 required positional argument: 'Loader'", "PyYAML<6"),
    ],
)
def test_packages_of_the_image_move_if_they_may(line: str, pip: str) -> None:
    remedy = find_remedy(fails(line), FREE)
    assert remedy
    assert remedy.pip == (pip,)
    kept = ImageFacts(
        FREE.packages,
        {name: SpecifierSet(f"=={version}") for name, version in FREE.packages.items()},
    )
    refused = find_remedy(fails(line), kept)
    assert refused
    assert refused.pip == ()
    assert "the image has" in refused.reason


@pytest.mark.parametrize(
    ("line", "facts", "pip"),
    [
        (
            "AttributeError: 'str' object has no attribute 'decode'",
            {"package": "keras"},
            "h5py<3",
        ),
        (
            "ValueError: too many values to unpack (expected 4)",
            {"source": "state, reward, done, info = env.step(action)"},
            "gym<0.26",
        ),
        (
            "ValueError: not enough values to unpack (expected 3, got 2)",
            {"source": "_, contours, _ = cv2.findContours(mask, 1, 2)"},
            "opencv-python-headless<4",
        ),
        (
            "TypeError: __init__() got an unexpected keyword argument 'size'",
            {"source": "model = Word2Vec(walks, size=128)"},
            "gensim<4",
        ),
    ],
)
def test_general_errors_need_their_place(line: str, facts: dict[str, str], pip: str) -> None:
    remedy = find_remedy(fails(line, **facts), FREE)
    assert remedy
    assert remedy.pip == (pip,)
    assert find_remedy(fails(line, source="x = f(y)", package="numpy"), FREE) is None


def test_fulfilled_remedy_is_no_remedy() -> None:
    start = fails("AttributeError: 'str' object has no attribute 'decode'", package="keras")
    assert find_remedy(start, IMAGE) is None


@pytest.mark.parametrize(
    "line",
    [
        "ModuleNotFoundError: No module named 'tensorflow.contrib'",
        "AttributeError: module 'tensorflow' has no attribute 'placeholder'",
        "AttributeError: module 'collections' has no attribute 'Iterable'",
        "ImportError: cannot import name 'Mapping' from 'collections' (/usr/lib/x.py)",
        "AttributeError: module 'time' has no attribute 'clock'",
    ],
)
def test_causes_without_a_package_have_a_reason(line: str) -> None:
    remedy = find_remedy(fails(line), IMAGE)
    assert remedy
    assert remedy.pip == remedy.apt == ()
    assert "Choose" in remedy.reason


def test_companion_that_never_fits_is_refused() -> None:
    line = "ImportError: /x/tensorflow_addons/a.so: undefined symbol: _Z"
    remedy = find_remedy(fails(line), IMAGE)
    assert remedy
    assert remedy.pip == ()
    assert "TensorFlow 1.15.5" in remedy.reason


@pytest.mark.parametrize("outcome", ["finished", "running", "stops"])
def test_only_failures_have_remedies(outcome: str) -> None:
    start = Start(outcome, reason="missing module", missing="tqdm")  # type: ignore[arg-type]
    assert find_remedy(start, IMAGE) is None


def test_unknown_failures_have_no_remedy() -> None:
    assert find_remedy(fails("ValueError: bad"), IMAGE) is None
    assert find_remedy(fails(reason="missing module", missing="bad name;"), IMAGE) is None


def test_causes_are_searched() -> None:
    start = fails("Exception: no", cause="ImportError: cannot import name 'rendering'")
    remedy = find_remedy(start, IMAGE)
    assert remedy
    assert remedy.pip == ("gym<0.22",)


def test_every_remedy_can_be_requested() -> None:
    cures = (*remedies._CURES, *remedies._HOPELESS)
    for cure in cures:
        for line in cure.pip:
            assert Requirement(line)
        assert cure.reason
    packages = {*remedies._LIBRARIES.values(), *remedies._PROGRAMS.values()}
    assert all(package == package.lower() and " " not in package for package in packages)


@pytest.mark.parametrize("text", ["a." * 3000, "module '" * 900, "cannot import name '" * 300])
def test_errors_are_searched_in_linear_time(text: str) -> None:
    begin = time.monotonic()
    find_remedy(fails(text), IMAGE)
    assert time.monotonic() - begin < 1


NOT_BUILT = "error: Failed to build `atari_py==0.2.6`\n  cause: The build backend returned\n"
COMPILERS = ("cmake", "g++", "gcc", "libc6-dev", "make")


@pytest.mark.parametrize(
    ("output", "packages"),
    [
        ("unable to execute 'x86_64-linux-gnu-gcc': No such file or directory", COMPILERS),
        ("error: command 'gcc' failed: No such file or directory", COMPILERS),
        ("/bin/sh: 1: make: not found", COMPILERS),
        ("error: [Errno 2] No such file or directory: 'cmake'", COMPILERS),
        ("RuntimeError: CMake must be installed to build", COMPILERS),
        ("unable to execute 'swig': No such file or directory", (*COMPILERS, "swig")),
        ("x.c:3:10: fatal error: zlib.h: No such file or directory", (*COMPILERS, "zlib1g-dev")),
    ],
)
def test_compilation_needs_tools_and_headers(output: str, packages: tuple[str, ...]) -> None:
    remedy = find_build_remedy(f"{NOT_BUILT}{output}\n", ())
    assert remedy
    assert remedy.build_apt == packages
    assert not remedy.wheels_only
    again = find_build_remedy(f"{NOT_BUILT}{output}\n", packages)
    assert again
    assert (again.build_apt, again.wheels_only) == ((), ("atari-py",))


@pytest.mark.parametrize(
    "output",
    ["error: 'const char*' has no member", "fatal error: own.h: No such file or directory"],
)
def test_compilation_that_fails_leaves_wheels(output: str) -> None:
    remedy = find_build_remedy(f"{NOT_BUILT}{output}", ())
    assert remedy
    assert remedy.wheels_only == ("atari-py",)
    assert "atari-py 0.2.6" in remedy.reason


def test_other_failures_of_a_build_have_no_remedy() -> None:
    assert find_build_remedy("gcc: not found", ()) is None
    other = f"gcc: not found\n{NOT_BUILT}"
    assert find_build_remedy(other, ()).wheels_only == ("atari-py",)  # type: ignore[union-attr]
