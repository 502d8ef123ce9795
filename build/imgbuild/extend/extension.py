"""What is added to an image: by a YAML file or by options, with the files that they name."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationError

from imgbuild import scalars
from imgbuild.addresses import familiar_name
from imgbuild.errors import InputError
from imgbuild.extend.build_files import source_path
from imgbuild.extend.requirement_files import RequirementReader, plain_requirement
from imgbuild.matrix.selection import Selection
from imgbuild.yaml_file import Fault, Location, Section, check, read_document

#: ``channel::name``, then a version. Source: conda's documentation, "Package match specifications".
_CONDA = re.compile(r"(?:[\w./-]+::)?([A-Za-z0-9_][A-Za-z0-9._-]*)\s*(.*)")
#: Packages of conda that are of no Python, or have another name in the index.
_CONDA_ONLY = re.compile(
    r"(lib|_|cuda|mkl|impi|gcc|gxx|gfortran|r-).*|.*-(ng|mpi|linux-64)|cudnn|nccl|blas|openblas|openmpi"
    r"|mpich|openssl|ca-certificates|sqlite|readline|ncurses|tk|xz|zlib|zstd|ffmpeg|opencv"
    r"|py-opencv|hdf5|pytorch|git|boost|nodejs"
)


#: The fields that add something.
_ADDED = {"pip", "requirements", "conda_file", "apt", "env", "copied", "user"}
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
    keep_image: bool = False
    conda_file: scalars.Prose | None = None
    apt: tuple[scalars.AptChoice, ...] = ()
    env: dict[scalars.Variable, scalars.VariableValue] = Field(default_factory=dict)
    copied: Annotated[tuple[scalars.Copied, ...], Field(alias="copy")] = ()
    user: scalars.ImageUser | None = None

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


def wanted_packages(extension: Extension, reader: RequirementReader) -> tuple[str, ...]:
    """Return all requirements for Python packages that the base does not fulfil itself.

    They are own ones and those of the files in the reader's folder, as the reader yields them.

    InputError: a line is none, asks for what pip has not, or does not fit the base.
    """
    folder, found = reader.folder, list[str]()
    for text in extension.pip:
        found += reader.read_line("--pip", text, folder)
    for name in extension.requirements:
        found += reader.read_file(folder / name)
    if extension.conda_file:
        path = folder / extension.conda_file
        for text in _of_conda(path, reader.base.python):
            found += reader.read_line(path.name, text, path.parent)
    reader.require_fit(keep_image=extension.keep_image)
    return tuple(dict.fromkeys(found))


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
