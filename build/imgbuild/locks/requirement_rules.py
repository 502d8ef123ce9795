"""Rules for the lines of requirement files: what a line means, and whether an image fulfils it.

Plain Python 3.6 with `packaging`: `imgbuild render` writes a copy for the program `pip-image` of
the images, which uses the `packaging` that pip brings.
"""

import re
from typing import Dict, Iterator, NamedTuple, Optional, Tuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

#: Distributions of the same TensorFlow, for other processors, systems, or managers of packages.
TENSORFLOW_NAMES = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-gpu",
    "tensorflow-aarch64",
    "tensorflow-base",
    "tensorflow-cpu-aws",
    "tensorflow-eigen",
    "tensorflow-intel",
    "tensorflow-macos",
    "tensorflow-mkl",
    "tensorflow-rocm",
)
#: Names of modules, and of placeholders in the index, by the distribution that people mean.
MODULES = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "Levenshtein": "python-Levenshtein",
    "MySQLdb": "mysqlclient",
    "OpenGL": "PyOpenGL",
    "OpenSSL": "pyOpenSSL",
    "PIL": "Pillow",
    "Xlib": "python-xlib",
    "absl": "absl-py",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "git": "GitPython",
    "google.protobuf": "protobuf",
    "imblearn": "imbalanced-learn",
    "matplotlib.pyplot": "matplotlib",
    "mpl_toolkits": "matplotlib",
    "nacl": "PyNaCl",
    "opencv": "opencv-python-headless",
    "pylab": "matplotlib",
    "pytorch": "torch",
    "pywt": "PyWavelets",
    "ruamel": "ruamel.yaml",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skvideo": "sk-video",
    "socks": "PySocks",
    "sonnet": "dm-sonnet",
    "tensorflow.keras": "tensorflow",
    "usb": "pyusb",
    "wx": "wxPython",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
#: Modules of Python 3, and backports to Python 2, which break pip or the interpreter.
_IN_PYTHON = (
    "argparse",
    "asyncio",
    "collections",
    "copy",
    "csv",
    "datetime",
    "enum34",
    "functools32",
    "futures",
    "glob",
    "itertools",
    "json",
    "logging",
    "math",
    "os",
    "pathlib",
    "pickle",
    "random",
    "re",
    "shutil",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "tkinter",
    "typing",
    "unittest",
    "uuid",
)
#: Lines that no index can answer, and why.
LEFT_OUT = {
    "pkg-resources": "Debian's pip lists it by mistake",
    "tensorflow-metal": "it is for macOS alone",
    **dict.fromkeys(_IN_PYTHON, "Python 3 has it"),
}
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[\w., -]*\])?"
#: The form of conda: a version after one equals sign, and perhaps a build.
_ONE_EQUALS = re.compile(rf"({_NAME})\s*=\s*([0-9][0-9A-Za-z.*+!_-]*)(=\S*)?")
#: What `pip freeze` writes of a package that conda installed: the folder where conda's packagers
#: built it. A package by another path is somebody's own, and not the index's of that name.
_LOCAL_BUILD = re.compile(
    rf"({_NAME}) *@ *file://((?:/[A-Za-z]:)?/"
    r"(?:(?:tmp/build|tmp/abs|croot|ci|bld|b|work/ci|work/perseverance-python-buildout|home/conda"
    r"|home/ktietz|home/builder|home/task|opt/conda|opt/concourse|private/tmp|private/var"
    r"|Users/builder|Users/runner)[/_]|\S*(?:conda-bld|feedstock_root|rattler-build))\S*)"
)
_WHEEL_VERSION = re.compile(r".*/[^/-]+-([0-9][^/-]*)-[^/]+\.whl")
#: Packages that only conda has.
_CONDA_ALONE = re.compile(r"conda(-.*)?|anaconda-.*|mkl-.*|navigator-updater|menuinst|ruamel-yaml")
#: Distributions with files of TensorFlow or of its parts.
_REPLACEMENT = re.compile(r"intel-tensorflow|.*-nightly")
#: Options of a line with a requirement.
_LINE_OPTIONS = re.compile(r"\s--[a-z].*")
_LONGEST = 2000

PASSES = "passes"
DIFFERS = "differs"
OTHER_TENSORFLOW = "another TensorFlow"


class ImageFacts(NamedTuple):
    """The facts about an image that the rules use.

    ``packages`` are its versions by canonical name, ``constraints`` the versions that its
    packages may change to, and those of other packages that work with its TensorFlow.
    ``environment`` has the values of markers; None: those of this interpreter.
    """

    packages: Dict[str, str]
    constraints: Dict[str, SpecifierSet]
    environment: Optional[Dict[str, str]] = None

    @property
    def tensorflow(self) -> str:
        """The version of its TensorFlow; empty if it has none."""
        versions = [self.packages[name] for name in TENSORFLOW_NAMES if name in self.packages]
        return versions[0].partition("+")[0] if versions else ""


class Verdict(NamedTuple):
    """Whether a line fits an image: PASSES, DIFFERS or OTHER_TENSORFLOW.

    ``kept`` is the line as pip gets it, or empty. ``reason`` says why it is another line, or why
    the image cannot fulfil it.
    """

    outcome: str
    kept: str
    reason: str = ""


def logical_lines(text: str) -> Iterator[Tuple[int, str]]:
    """Yield the lines of a requirement file, joined and without comments, by their last number.

    As in pip, a comment is not continued.
    """
    lines, parts = text.splitlines(), []
    for number, line in enumerate(lines, 1):
        parts.append(line)
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            parts[-1] = line[:-1] + " "
            if number < len(lines):
                continue
        joined = re.sub(r"(^|\s)#.*", "", "".join(parts)).strip()
        if joined:
            yield number, joined
        parts = []


def parse_line(line: str) -> Optional[Requirement]:
    """Return the requirement of a line, without its options; None: it is another kind of line."""
    text = _LINE_OPTIONS.sub("", line)
    try:
        return Requirement(text) if len(text) <= _LONGEST else None
    except (InvalidRequirement, RecursionError, ValueError):
        return None


def parse_constraints(text: str) -> Dict[str, SpecifierSet]:
    """Return the versions that a file of constraints admits, by canonical name."""
    constraints = {}
    for _, line in logical_lines(text):
        requirement = parse_line(line)
        if requirement:
            constraints[str(canonicalize_name(requirement.name))] = requirement.specifier
    return constraints


def repair_line(line: str) -> Tuple[str, str]:
    """Return the line that its writer meant, empty if there is none, and why it was changed."""
    match = _ONE_EQUALS.fullmatch(line)
    if match:
        meant = f"{match.group(1)}=={match.group(2)}"
        return meant, f"{line} is read as {meant}"
    match = _LOCAL_BUILD.fullmatch(line)
    if match:
        return _without_path(line, match.group(1), match.group(2))
    requirement = parse_line(line)
    if not requirement:
        return line, ""
    name = requirement.name
    if canonicalize_name(name) in LEFT_OUT:
        return "", f"{line} is left out: {LEFT_OUT[canonicalize_name(name)]}"
    if name not in MODULES:
        return line, ""
    placeholder = name == "sklearn" and str(requirement.specifier).startswith("==0.0")
    meant = MODULES[name] + ("" if placeholder else line[len(name) :])
    return meant, f"{line} is read as {meant}"


def _without_path(line: str, name: str, path: str) -> Tuple[str, str]:
    if _CONDA_ALONE.fullmatch(canonicalize_name(name)):
        return "", f"{line} is left out: only conda has it"
    version = _WHEEL_VERSION.fullmatch(path)
    meant = f"{name}=={version.group(1)}" if version else name
    return meant, f"{line} is read as {meant}: the path is of another machine"


def judge_line(line: str, image: ImageFacts) -> Verdict:
    """Return whether a repaired line fits an image."""
    requirement = parse_line(line)
    if not requirement or requirement.url or not _applies(requirement, image):
        return Verdict(PASSES, line)
    name = str(canonicalize_name(requirement.name))
    if name in TENSORFLOW_NAMES and image.tensorflow:
        return _judge_tensorflow(line, requirement, image)
    allowed = image.constraints.get(name)
    if allowed is not None and str(allowed) == "<0":
        reason = f"no release works with the image's TensorFlow {image.tensorflow}"
        if _REPLACEMENT.match(name):
            reason = "it would replace files of the image's TensorFlow; leave it out"
        return Verdict(OTHER_TENSORFLOW, "", reason)
    return _judge_version(line, requirement, image)


def _judge_version(line: str, requirement: Requirement, image: ImageFacts) -> Verdict:
    name, asked = str(canonicalize_name(requirement.name)), requirement.specifier
    version, allowed = image.packages.get(name), image.constraints.get(name)
    fits = version and asked.contains(version, prereleases=True)
    if fits or allowed is None or _overlap(asked, allowed):
        return Verdict(PASSES, line)
    if version:
        bounds = "" if _pins(allowed) else f", which may change within {allowed}"
        return Verdict(DIFFERS, "", f"the image has {version}{bounds}")
    works = f"TensorFlow {image.tensorflow} works with {name}{allowed}"
    return Verdict(DIFFERS, requirement.name, works)


def tensorflow_minors(asked: SpecifierSet) -> Tuple[str, ...]:
    """Return the minor versions of TensorFlow that pins name."""
    minors = []
    for specifier in asked:
        if specifier.operator in ("==", "===", "~="):
            numbers = re.match(r"[0-9]+\.[0-9]+", specifier.version)
            minors += [numbers.group()] if numbers else []
    return tuple(minors)


def _judge_tensorflow(line: str, requirement: Requirement, image: ImageFacts) -> Verdict:
    """Any release of the image's minor version will do; so will its distribution's other names."""
    asked, version = requirement.specifier, image.tensorflow
    there = canonicalize_name(requirement.name) in image.packages and not requirement.extras
    if asked.contains(version, prereleases=True):
        return Verdict(PASSES, line if there else "", "" if there else _has(version))
    minor = ".".join(version.split(".")[:2])
    releases = (f"{minor}.{patch}" for patch in range(10))
    if tensorflow_minors(asked) == (minor,) or any(map(asked.contains, releases)):
        return Verdict(PASSES, "", _has(version))
    return Verdict(OTHER_TENSORFLOW, "", _has(version))


def _has(version: str) -> str:
    return f"the image has TensorFlow {version}"


def _applies(requirement: Requirement, image: ImageFacts) -> bool:
    return not requirement.marker or requirement.marker.evaluate(image.environment)


def _pins(allowed: SpecifierSet) -> bool:
    return any(one.operator in ("==", "===") and "*" not in one.version for one in allowed)


def _overlap(asked: SpecifierSet, allowed: SpecifierSet) -> bool:
    """Return whether there can be a version that both admit.

    If there is any, the versions that they name, or ones just above these, are among them.
    """
    versions = {"0"}
    for specifier in (*asked, *allowed):
        version = re.sub(r"\.\*$", "", specifier.version)
        following = re.sub(r"[0-9]{1,9}$", lambda last: str(int(last.group()) + 1), version)
        versions |= {version, version + ".1", following}
    return any(_admits(asked, one) and _admits(allowed, one) for one in versions)


def _admits(specifiers: SpecifierSet, version: str) -> bool:
    try:
        return specifiers.contains(Version(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False
