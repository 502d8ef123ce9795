"""What is added to an image: by a YAML file or by options, with the files that they name."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import parse_wheel_filename
from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationError

from imgbuild import scalars
from imgbuild.addresses import familiar_name
from imgbuild.dockerfile.resolver import parse_requirement
from imgbuild.errors import InputError
from imgbuild.extend.build_files import source_path
from imgbuild.files import file_sha256, read_named
from imgbuild.matrix.selection import Selection
from imgbuild.yaml_file import Fault, Location, Section, check, read_document

_OTHER_FILE = re.compile(r"(-r|-c|--requirement|--constraint)[ =]?\s*((?!\S*://)[^\s\0]+)")
_HASHES = re.compile(r"(\s+--hash[= ]sha256:[0-9a-f]{64})+$")
#: What BuildKit mounts as it is written.
_WHEEL = re.compile(r"[A-Za-z0-9._@+/-]+\.whl")
_INDEX = re.compile(r"-i|-f|--(extra-)?index-url|--find-links|--no-index|--trusted-host")
_SOURCE = re.compile(r"(?:-e|--editable)[ =]?\s*(.+)|([.~/].*|\S*://.+)|\S+ *@ *(\S+)")
#: ``channel::name``, then a version. Source: conda's documentation, "Package match specifications".
_CONDA = re.compile(r"(?:[\w./-]+::)?([A-Za-z0-9_][A-Za-z0-9._-]*)\s*(.*)")
#: Packages of conda that are of no Python, or have another name in the index.
_CONDA_ONLY = re.compile(
    r"(lib|_|cuda|mkl|impi|gcc|gxx|gfortran|r-).*|.*-(ng|mpi|linux-64)|cudnn|nccl|blas|openblas|openmpi"
    r"|mpich|openssl|ca-certificates|sqlite|readline|ncurses|tk|xz|zlib|zstd|ffmpeg|opencv"
    r"|py-opencv|hdf5|pytorch|git|boost|nodejs"
)


def plain_requirement(value: str) -> str:
    """Return a requirement, or the path of a wheel, as it is written.

    ValueError: it cannot be locked by hash; the message names the way for what it is.
    """
    text = _HASHES.sub("", value)
    try:
        if _WHEEL.fullmatch(text) or (value.isprintable() and not parse_requirement(text).url):
            return value
    except ValueError:
        pass
    way = "write it as keras==2.3.1, or leave this line out"
    if _INDEX.match(text):
        way = "name the index as the mirror `python-index` in the settings (docs/guide.md), or "
        way += "download the wheel (`pip download --no-deps NAME`), and write its path"
    elif source := _SOURCE.fullmatch(text):
        way = f"build a wheel, `pip wheel --no-deps -w dist {next(filter(None, source.groups()))}`"
        way += ", and write its path, dist/NAME.whl; or install it in a Dockerfile FROM the image"
    raise ValueError(
        f"{value!r} is not a requirement of the package index, and cannot be locked by hash: {way}"
    )


#: The fields that add something.
_ADDED = {"pip", "requirements", "conda_file", "apt", "env", "copied", "user"}
#: Which suites of the base run in the result: those that take seconds, all of them, or none.
TestSet = Literal["short", "all", "none"]
PipRequirement = Annotated[str, AfterValidator(plain_requirement)]


class Extension(Section):
    """What to add to which image; in a file, its keys are the options of the command.

    Paths are relative to the file, or to the folder that the command is given in.
    """

    tag: scalars.ImageTag | None = None
    base: scalars.ImageReference | None = None
    tf: scalars.Prose | None = None
    cpu: bool = False
    gpu: bool = False
    stack: scalars.Prose | None = None
    mpi: scalars.Prose | None = None
    as_documented: bool = False
    name: scalars.Prose | None = None
    pip: tuple[PipRequirement, ...] = ()
    requirements: tuple[scalars.Prose, ...] = ()
    conda_file: scalars.Prose | None = None
    apt: tuple[scalars.AptChoice, ...] = ()
    build_apt: tuple[scalars.AptChoice, ...] = ()
    env: dict[scalars.Variable, scalars.VariableValue] = Field(default_factory=dict)
    copied: Annotated[tuple[scalars.Copied, ...], Field(alias="copy")] = ()
    user: scalars.ImageUser | None = None
    test: TestSet = "short"

    @property
    def downloads_apt(self) -> bool:
        """Whether packages of the system are downloaded: for the image, or to build others."""
        return bool(self.apt or self.build_apt)

    @property
    def selection(self) -> Selection:
        tf, name = ((one,) if one else () for one in (self.tf, self.name))
        options = (self.cpu, self.gpu, self.stack, self.mpi, False, self.as_documented)
        return Selection(tf, *options, name)


def extension_of(values: dict[str, Any]) -> Extension:
    """Return what options say; InputError names the one that is wrong."""
    try:
        return Extension.model_validate(values)
    except ValidationError as error:
        option = str(error.errors()[0]["loc"][0]).replace("_", "-")
        raise InputError(f"--{option}: {scalars.refusal_reason(error)}.") from None


def read_extension(path: Path) -> Extension:
    """Return what a YAML file says; InputError names every fault, and files that are not there."""
    document = read_document(path)
    extension, faults = check(document, Extension)
    for place, name in _files_named(extension) if extension else ():
        if not (path.absolute().parent / name).exists():
            message = f"{name!r} is not there; paths are relative to this file"
            faults.append(Fault(place, message))
    if extension is None or faults:
        raise document.reject(faults)
    return extension


def _files_named(extension: Extension) -> Iterator[tuple[Location, str]]:
    for number, name in enumerate(extension.requirements):
        yield ("requirements", number), name
    for number, pair in enumerate(extension.copied):
        yield ("copy", number), pair.partition(":")[0]
    if extension.conda_file:
        yield ("conda_file",), extension.conda_file


def check_use(extension: Extension, folder: Path, repository: str) -> None:
    """Raise InputError: nothing to add, a file not in ``folder``, a tag of ``repository``."""
    if not any(getattr(extension, field) for field in _ADDED):
        raise InputError("Nothing to add: give --pip, --requirements, --apt, --env, --copy, …")
    for pair in extension.copied:
        source_path(pair.partition(":")[0], folder)
    name = (extension.tag or "").rpartition(":")[0]
    if name and familiar_name(name) == familiar_name(repository):
        raise InputError(
            f"The tag {extension.tag}: names of {repository} are for the images of the matrix. "
            "Give the result another one, such as me/train:1."
        )


def wanted_packages(extension: Extension, folder: Path, python: str) -> tuple[str, ...]:
    """Return all requirements for Python packages: own ones, those of the files in ``folder``.

    They are lines in pip's format: a constraint has ``-c `` before it, a wheel is its path below
    the folder and its hash. ``python`` is the base's version. InputError: a line is none, or asks
    for what pip has not.
    """
    found = [*_lines("--pip", extension.pip, folder, folder)]
    for name in extension.requirements:
        found += _required(folder / name, folder)
    if extension.conda_file:
        path = folder / extension.conda_file
        found += _lines(path.name, _of_conda(path, python), path.parent, folder)
    return tuple(dict.fromkeys(found))


def _required(path: Path, folder: Path, *above: str, place: str = "") -> Iterator[str]:
    """Yield the requirements of a file in pip's format, and of those that it includes.

    ``place`` is where another file includes this one.
    """
    here, text = {*above, os.path.realpath(path)}, ""
    lines = read_named(path, f"{place}{path}").splitlines()
    for number, line in enumerate(lines, 1):
        text += line
        # As in pip, no comment is continued, and neither is the last line.
        if text.endswith("\\") and not line.lstrip().startswith("#"):
            text = f"{text[:-1]} "
            if number < len(lines):
                continue
        text, place = re.sub(r"(^|\s)#.*", "", text).strip(), f"{path.name}:{number}"
        other = _OTHER_FILE.fullmatch(text)
        if other and os.path.realpath(path.parent / other[2]) in here:
            raise InputError(f"{place}: {other[2]} includes itself. Take the line out.")
        if other:
            prefix = "-c " if other[1] in {"-c", "--constraint"} else ""
            for one in _required(path.parent / other[2], folder, *here, place=f"{place}: "):
                yield prefix + one.removeprefix(prefix)
        elif text and text != "--require-hashes":
            yield from _lines(place, [text], path.parent, folder)
        text = ""


def _lines(place: str, texts: Iterable[str], here: Path, folder: Path) -> Iterator[str]:
    """Yield requirements that stand at ``place``; paths are from the folder ``here``."""
    for text in texts:
        try:
            line = " ".join(plain_requirement(text).split())
            if _WHEEL.match(line):
                line = _wheel(_HASHES.sub("", line), here, folder)
        except ValueError as error:
            raise InputError(f"{place}: {error}.") from None
        yield line


def wheel_paths(requested: Iterable[str]) -> list[str]:
    """Return the wheels among requirements as `wanted_packages` returns them."""
    return [line.split()[0] for line in requested if line.partition(" ")[0].endswith(".whl")]


def _wheel(text: str, here: Path, folder: Path) -> str:
    path = os.path.relpath(here / text, folder)
    if path.startswith("..") or not _WHEEL.fullmatch(path) or not (folder / path).is_file():
        raise ValueError(f"{text}: no file below {folder}, which the build reads; copy it there")
    parse_wheel_filename(Path(path).name)
    return f"{path} --hash=sha256:{file_sha256(folder / path)}"


class PipSection(Section):
    """The packages of a conda file that conda leaves to pip."""

    pip: tuple[PipRequirement, ...]


CondaEntry = Annotated[scalars.Prose, Tag("an entry")] | Annotated[PipSection, Tag("pip")]


def _entry_kind(value: object) -> str:
    return "pip" if isinstance(value, dict) else "an entry"


class CondaFile(Section):
    """An ``environment.yml``; the interpreter is the base's, and channels do not count."""

    name: scalars.Prose | None = None
    channels: tuple[scalars.Prose, ...] = ()
    dependencies: tuple[Annotated[CondaEntry, Discriminator(_entry_kind)], ...] = ()
    prefix: scalars.Prose | None = None


def _of_conda(path: Path, python: str) -> list[str]:
    """Return the requirements of a conda file; a Python package has the same name at pip."""
    document = read_document(path)
    parsed, faults = check(document, CondaFile)
    found = list[str]()
    for number, entry in enumerate(parsed.dependencies if parsed else ()):
        if isinstance(entry, PipSection):
            found += entry.pip
            continue
        match = _CONDA.fullmatch(entry)
        name, versions = (match[1].lower(), _versions(match[2])) if match else ("", None)
        message = ""
        if versions is None:
            message = "not a package of conda, such as numpy=1.18 or numpy>=1.18,<2"
        elif name == "python" and not SpecifierSet(versions).contains(python):
            message = f"the base has Python {python}"
        elif _CONDA_ONLY.fullmatch(name):
            message = (
                "only conda has it, or pip by another name. Leave out what the base has (MPI, "
                "CUDA, BLAS, libraries of compilers); `apt` takes packages of the system. conda's "
                "own come into the stack ubuntu alone, in a family of your own: docs/extend.md"
            )
        elif name not in {"python", "pip"}:
            found.append(f"{name}{versions}")
        faults += [Fault(("dependencies", number), f"{entry!r}: {message}")] if message else []
    if faults:
        raise document.reject(faults)
    return found


def _versions(text: str) -> str | None:
    """Return pip's form of conda's versions: ``=1.18`` is any 1.18; None where it has none."""
    if found := re.fullmatch(r"=?\s*([0-9][0-9A-Za-z.]*?)(\.?\*)?(=[\w.*]+)?", text):
        text = f"=={found[1]}{'' if found[3] else '.*'}"
    try:
        return str(SpecifierSet(text))
    except InvalidSpecifier:
        return None
