"""What is added to an image: by a YAML file or by options, with the files that they name."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.utils import parse_wheel_filename
from pydantic import AfterValidator, Field, ValidationError

from imgbuild import scalars
from imgbuild.addresses import familiar_name
from imgbuild.dockerfile.resolver import parse_requirement
from imgbuild.errors import InputError
from imgbuild.extend.build_files import source_path
from imgbuild.extend.conda_file import CondaPackages, read_conda_file
from imgbuild.files import file_sha256, read_named
from imgbuild.matrix.selection import Selection
from imgbuild.other_formats import require_requirements
from imgbuild.yaml_file import Fault, Location, Section, check, read_document

_OTHER_FILE = re.compile(r"(-r|-c|--requirement|--constraint)[ =]?\s*((?!\S*://)[^\s\0]+)")
_HASHES = re.compile(r"(\s+--hash[= ]sha256:[0-9a-f]{64})+$")
#: What BuildKit mounts as it is written.
_WHEEL = re.compile(r"[A-Za-z0-9._@+/-]+\.whl")
_INDEX = re.compile(r"-i|-f|--(extra-)?index-url|--find-links|--no-index|--trusted-host")
_SOURCE = re.compile(r"(?:-e|--editable)[ =]?\s*(.+)|([.~/].*|\S*://.+)|\S+ *@ *(\S+)")


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


def read_conda_packages(extension: Extension, folder: Path, python: str) -> CondaPackages:
    """Return the contents of the conda file, if there is one; ``python`` is the base's version."""
    if not extension.conda_file:
        return CondaPackages()
    return read_conda_file(folder / extension.conda_file, python, _check_pip_line)


def _check_pip_line(line: str) -> None:
    if not _OTHER_FILE.fullmatch(line):
        plain_requirement(line)


def wanted_packages(
    extension: Extension, folder: Path, conda: CondaPackages | None = None
) -> tuple[str, ...]:
    """Return all requirements for Python packages: own ones, those of the files in ``folder``.

    They are lines in pip's format: a constraint has ``-c `` before it, a wheel is its path below
    the folder and its hash. InputError: a line is none, or asks for what pip has not.
    """
    found = [*_lines("--pip", extension.pip, folder, folder)]
    for name in extension.requirements:
        found += _required(folder / name, folder)
    if conda:
        here = (folder / (extension.conda_file or "")).parent
        for place, line in (*conda.requirements, *conda.pip_lines):
            found += _required_line(place, line, here, folder, set())
    return tuple(dict.fromkeys(found))


def _required(path: Path, folder: Path, *above: str, place: str = "") -> Iterator[str]:
    """Yield the requirements of a file in pip's format, and of those that it includes.

    ``place`` is where another file includes this one.
    """
    here, text = {*above, os.path.realpath(path)}, ""
    content = read_named(path, f"{place}{path}")
    require_requirements(path, content)
    lines = content.splitlines()
    for number, line in enumerate(lines, 1):
        text += line
        # As in pip, no comment is continued, and neither is the last line.
        if text.endswith("\\") and not line.lstrip().startswith("#"):
            text = f"{text[:-1]} "
            if number < len(lines):
                continue
        text, place = re.sub(r"(^|\s)#.*", "", text).strip(), f"{path.name}:{number}"
        if text and text != "--require-hashes":
            yield from _required_line(place, text, path.parent, folder, here)
        text = ""


def _required_line(
    place: str, text: str, parent: Path, folder: Path, above: set[str]
) -> Iterator[str]:
    """Yield the requirement of a line, or those of the file that it includes."""
    other = _OTHER_FILE.fullmatch(text)
    if other and os.path.realpath(parent / other[2]) in above:
        raise InputError(f"{place}: {other[2]} includes itself. Take the line out.")
    if other:
        prefix = "-c " if other[1] in {"-c", "--constraint"} else ""
        for one in _required(parent / other[2], folder, *above, place=f"{place}: "):
            yield prefix + one.removeprefix(prefix)
    else:
        yield from _lines(place, [text], parent, folder)


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
