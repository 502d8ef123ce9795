"""Read conda's files, and separate packages for pip from packages that only conda has."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from pydantic import Discriminator, Field, Tag

from imgbuild.core import scalars
from imgbuild.core.files import read_user_file
from imgbuild.core.other_formats import is_conda_list
from imgbuild.core.text import count_text
from imgbuild.core.yaml_file import (
    LARGEST,
    Document,
    Fault,
    Location,
    Section,
    check,
    read_document,
)
from imgbuild.extend.base_image import BaseImage
from imgbuild.extend.requirement_files import RequirementLine

#: Conda packages that have another name in pip.
PIP_NAMES = {
    "brotli-python": "brotli",
    "dask-core": "dask",
    "keras-base": "keras",
    "keras-gpu": "keras",
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
    "opencv": "opencv-python-headless",
    "py-opencv": "opencv-python-headless",
    "py-xgboost": "xgboost",
    "py-xgboost-cpu": "xgboost",
    "py-xgboost-gpu": "xgboost",
    "pytables": "tables",
    "python-blosc": "blosc",
    "python-flatbuffers": "flatbuffers",
    "python-graphviz": "graphviz",
    "python-lmdb": "lmdb",
    "python-tzdata": "tzdata",
    "python-xxhash": "xxhash",
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "ruamel-yaml": "ruamel.yaml",
    "tensorflow-eigen": "tensorflow",
    "tensorflow-mkl": "tensorflow",
    "uproot-base": "uproot",
}
#: Packages that pip also has, although their conda builds are not for one Python.
_WITHOUT_PYTHON = {"tensorflow-gpu", *PIP_NAMES}
#: Packages for CUDA and MPI, which the image provides itself.
_CUDA = re.compile(r"cuda(toolkit)?(-.*)?|cudnn|cupti|nccl")
_MPI = re.compile(r"openmpi(-.*)?|mpich(-.*)?|impi.*|mpi")
#: Packages that only conda has: parts of other packages, libraries, compilers, and conda itself.
#: `librosa` and `libcst` are Python packages.
_CONDA_ALONE = re.compile(
    r"-.*|lib(?!rosa$|cst$).*|(ana)?conda(-.*)?|navigator-.*|r-.*|(gcc|gxx|gfortran|binutils|clangxx)"
    r"(-.*)?|(m2w64|msys2|font|fonts|xorg|aws|gst|ld-impl|sysroot|kernel-headers|win|vs20\d\d)-.*"
    r"|mkl(-.*)?|pytorch-(cuda|mutex)|.*-linux-64"
)
_LIST = Path(__file__).with_name("conda_alone.txt").read_text(encoding="utf-8")
_CONDA_ALONE_NAMES = {line for line in _LIST.splitlines() if not line.startswith("#")}
#: Programs among them, with their package name in the archives of all systems.
_PROGRAMS = {
    "curl": "curl",
    "ffmpeg": "ffmpeg",
    "git": "git",
    "graphviz": "graphviz",
    "imagemagick": "imagemagick",
    "nodejs": "nodejs",
    "p7zip": "p7zip-full",
    "pandoc": "pandoc",
    "tesseract": "tesseract-ocr",
    "wget": "wget",
}
#: ``channel::name`` and a version. Source: conda's documentation, "Package match specifications".
_SPEC = re.compile(r"(?:\S+::)?([A-Za-z0-9_][A-Za-z0-9._-]*)\s*(.*)")
#: The longer form, ``name[version='>=1.18,<2',build=py36_0]``.
_BRACKETS = re.compile(r"\[(.*)\]")
_KEY = re.compile(r"(version|build)\s*=\s*(?:'([^']*)'|\"([^\"]*)\"|([^,\]]*))")
_VERSION = re.compile(r"(={0,2})\s*([0-9][0-9A-Za-z.!+_]*?)(\.?\*)?(?:\s*=\s*|\s+|$)(\S*)")
_WRONG = "{!r}: not a package of conda; write it as numpy=1.18 or numpy>=1.18,<2"
_OPENCV = {"opencv", "py-opencv"}
#: One line of ``conda list --explicit``.
_URL = re.compile(
    r"https?://[^\s#]+/([^/\s#]+)-([^-/\s#]+)-([^-/\s#]+?)(?:\.tar\.bz2|\.conda)(?:#\S*)?"
)


class PipSection(Section):
    """The packages of a conda file that conda installs with pip."""

    pip: tuple[scalars.Prose, ...]


CondaEntry = Annotated[scalars.Prose, Tag("an entry")] | Annotated[PipSection, Tag("pip")]


def _entry_kind(value: object) -> str:
    return "pip" if isinstance(value, dict) else "an entry"


class CondaFile(Section):
    """An ``environment.yml``; channels are ignored, and the base provides Python."""

    name: scalars.Prose | None = None
    channels: tuple[scalars.Prose, ...] = ()
    platforms: tuple[scalars.Prose, ...] = ()
    dependencies: tuple[Annotated[CondaEntry, Discriminator(_entry_kind)], ...] = ()
    variables: dict[scalars.Variable, scalars.VariableValue] = Field(default_factory=dict)
    prefix: scalars.Prose | None = None


@dataclass
class CondaPackages:
    """The contents of a conda file.

    - ``requirements``: conda's packages with their names in pip
    - ``pip_lines``: lines of the pip section
    - ``from_image``: packages that the image provides itself
    - ``skipped``: packages that only conda has
    """

    file: str = ""
    python: SpecifierSet = field(default_factory=SpecifierSet)
    requirements: list[RequirementLine] = field(default_factory=list)
    pip_lines: list[RequirementLine] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    from_image: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[RequirementLine]:
        """All lines for pip."""
        return [*self.requirements, *self.pip_lines]

    def notes(self, base: BaseImage) -> Iterator[str]:
        """Yield a line for each kind of package that pip does not install."""
        if not self.python.contains(base.python):
            yield f"put aside: {self.file}: Python {self.python}: the image has {base.python}"
        if self.from_image:
            names = ", ".join(self.from_image)
            yield f"{self.file}: {names}: {_image_parts(base)}"
        if self.skipped:
            names = ", ".join(self.skipped)
            what = count_text(len(self.skipped), "package")
            yield f"{self.file}: {what} that only conda has, ignored: {names}"
        programs = [_PROGRAMS[name] for name in self.skipped if name in _PROGRAMS]
        if programs:
            options = " ".join(f"--apt {name}" for name in programs)
            yield f"{self.file}: to install its programs from the system's archive: {options}"


def read_conda_file(path: Path, python: str, check_line: Callable[[str], object]) -> CondaPackages:
    """Read an ``environment.yml`` or a list that conda exported.

    ``python`` is the base's version; an empty version accepts any Python. ``check_line`` raises
    ValueError for a line of the pip section that cannot be used.

    InputError: an entry has the wrong format, requires another Python, or has versions that pip
        does not support; the message names all of them.
    """
    document, entries, variables = _read_entries(path)
    packages = CondaPackages(path.name, variables=variables)
    faults = list(document.faults)
    for location, entry in entries:
        line = RequirementLine(document.position(location), entry, path.parent)
        try:
            if "pip" in location:
                check_line(entry)
                packages.pip_lines.append(line)
            elif requirement := _sort_entry(entry, packages, python):
                packages.requirements.append(line._replace(text=requirement))
        except ValueError as error:
            faults.append(Fault(location, str(error)))
    if faults:
        raise document.reject(faults)
    packages.requirements = _drop_parts(packages)
    packages.skipped = list(dict.fromkeys(packages.skipped))
    return packages


def _read_entries(path: Path) -> tuple[Document, list[tuple[Location, str]], dict[str, str]]:
    """Return the document, its entries with locations, and its variables.

    InputError: the file has another format.
    """
    content = read_user_file(path, largest=LARGEST)
    lines = content.splitlines()
    if is_conda_list("\n".join(lines)):
        marks: dict[Location, tuple[int, int]] = {(i,): (i + 1, 1) for i in range(len(lines))}
        listed: list[tuple[Location, str]] = [((i,), text) for i, text in list_entries(content)]
        return Document(path, marks=marks), listed, {}
    document = read_document(path)
    parsed, faults = check(document, CondaFile)
    if parsed is None:
        raise document.reject(faults)
    entries = list[tuple[Location, str]]()
    for number, entry in enumerate(parsed.dependencies):
        place: Location = ("dependencies", number)
        if isinstance(entry, PipSection):
            entries += [((*place, "pip", i), line) for i, line in enumerate(entry.pip)]
        else:
            entries.append((place, entry))
    return document, entries, parsed.variables


def list_entries(text: str) -> Iterator[tuple[int, str]]:
    """Yield the entries of a list that conda exported, by the index of their lines."""
    for index, line in enumerate(text.splitlines()):
        entry = line.strip()
        if entry[:1] not in "#@":
            yield index, entry


def _sort_entry(entry: str, packages: CondaPackages, python: str) -> str:
    """Return pip's requirement for an entry; empty if pip does not install it.

    ValueError: it requires another Python, or has versions that pip does not support.
    """
    package, versions, build = _parse_entry(entry)
    name = canonicalize_name(package)
    if name == "pip" or (name in {"setuptools", "wheel"} and build):
        return ""  # conda adds them to every environment
    if _CUDA.fullmatch(name) or _MPI.fullmatch(name):
        packages.from_image.append(entry)
        return ""
    if name != "python" and _is_of_conda_alone(name, build):
        packages.skipped.append(package)
        return ""
    if versions is None:
        raise ValueError(_WRONG.format(entry))
    if name == "python":
        packages.python &= _python_versions(versions)
        # Always compare: only a comparison parses the version, which can have thousands of digits.
        if not packages.python.contains(python or "3") and python:
            raise ValueError(
                f"{entry!r}: the base has Python {python}; choose an image with this Python "
                "(`imgbuild list`), or put the line aside: --keep-image"
            )
        return ""
    if name in _OPENCV and re.fullmatch(r"==[\d.]+", versions):
        versions += ".*"  # releases for pip have one more number
    return f"{PIP_NAMES.get(name, package.lower())}{versions}"


def convert_entry(entry: str) -> str:
    """Return an entry as a requirement of pip, also for ``python``; empty if there is none."""
    packages = CondaPackages()
    try:
        requirement = _sort_entry(entry, packages, "")
    except ValueError:
        return ""
    return requirement or (f"python{packages.python}" if str(packages.python) else "")


def _is_of_conda_alone(name: str, build: str) -> bool:
    """Return whether pip has no such package.

    The build names of Python packages contain "py".
    """
    if name in _CONDA_ALONE_NAMES or _CONDA_ALONE.fullmatch(name):
        return True
    of_python = "py" in build or build == "<pip>" or name in _WITHOUT_PYTHON
    return bool(build) and "*" not in build and not of_python


def _parse_entry(entry: str) -> tuple[str, str | None, str]:
    """Return an entry's package, its versions in pip's format, and its conda build.

    Versions are None if pip has no equivalent. ValueError: the entry is not in conda's format.
    """
    if url := _URL.fullmatch(entry):
        return url[1], _pip_versions(f"=={url[2]}"), url[3]
    match = _SPEC.fullmatch(entry)
    if not match:
        raise ValueError(_WRONG.format(entry))
    rest, build = match[2], ""
    if brackets := _BRACKETS.fullmatch(rest):
        values = {key[1]: key[2] or key[3] or key[4] or "" for key in _KEY.finditer(brackets[1])}
        rest = values.get("version", "")
        build = values.get("build", "")
    elif rest.startswith("=*="):
        rest, build = "", rest[3:]
    version = _VERSION.fullmatch(rest)
    if version and version[4]:
        build = version[4]
    return match[1], _pip_versions(rest), build


def _pip_versions(text: str) -> str | None:
    """Convert conda's versions to pip's format: ``=1.18`` is any 1.18; None if impossible."""
    if text in {"*", "=*"}:
        return ""
    if match := _VERSION.fullmatch(text):
        equals, version, star, build = match.groups()
        text = f"=={version}"
        if star or not (equals == "==" or build):
            text += ".*"
    try:
        return str(SpecifierSet(text))
    except InvalidSpecifier:
        return None


def _python_versions(versions: str) -> SpecifierSet:
    """Return the acceptable Python versions: an exact version accepts its minor version."""
    exact = re.fullmatch(r"==([0-9]+\.[0-9]+)\.[0-9]+(?:\.\*)?", versions)
    if exact:
        versions = f"=={exact[1]}.*"
    return SpecifierSet(versions)


def _drop_parts(packages: CondaPackages) -> list[RequirementLine]:
    """Return the requirements without duplicates, because conda splits some packages of pip.

    OpenCV is skipped if the pip section has it, because both would provide the module cv2.
    """
    own = any(line.text.lower().startswith("opencv-") for line in packages.pip_lines)
    kept: dict[str, RequirementLine] = {}
    for line in packages.requirements:
        if own and line.text.startswith(PIP_NAMES["opencv"]):
            continue
        name = line.text.replace("_", "-")
        kept.setdefault(name, line)
    return list(kept.values())


def _image_parts(base: BaseImage) -> str:
    """Return a sentence about the image's CUDA and MPI."""
    if not (image := base.image):
        return f"not installed; {base.name} keeps its own CUDA and MPI, if any"
    mpi = image.mpi_name if image.horovod else "no MPI"
    parts = [mpi]
    for component, title in (("cuda", "CUDA"), ("cudnn", "cuDNN"), ("nccl", "NCCL")):
        if image.cuda and component in image.keys:
            version = image.version_of(component)
            parts.append(f"{title} {version}")
    listed = ", ".join(parts)
    has = f"{base.name} has {listed}"
    return has if image.cuda else f"{has} and no CUDA (--gpu chooses an image for GPUs)"
