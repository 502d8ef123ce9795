"""Additions to an image, from a YAML file or from options, with the files that they name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from imgbuild.core import scalars
from imgbuild.core.errors import InputError
from imgbuild.core.yaml_file import Fault, Location, Section, check, read_document
from imgbuild.extend.build_files import source_path
from imgbuild.extend.conda_file import CondaPackages, read_conda_file
from imgbuild.extend.requirement_files import (
    RequirementLine,
    check_line,
    expand_line,
    plain_requirement,
    read_lines,
)
from imgbuild.matrix.selection import Selection
from imgbuild.net.addresses import familiar_name

#: The fields that add something.
_ADDED = {"pip", "requirements", "conda_file", "apt", "env", "copied", "user"}
#: The answer to a key that such files no longer have.
_AS_DOCUMENTED = (
    "the key 'as_documented' was removed. Images are built with the corrected pins only; `imgbuild "
    "show IMAGE` lists the documented ones, and why they cannot work"
)
#: Which suites of the base run in the result: those that take seconds, all of them, or none.
TestSet = Literal["short", "all", "none"]
PipRequirement = Annotated[str, AfterValidator(plain_requirement)]


class Extension(Section):
    """An image and the additions to it; in a file, the keys are the options of the command.

    Paths are relative to the file, or to the folder that the command is given in.
    """

    tag: scalars.ImageTag | None = None
    base: scalars.ImageReference | None = None
    tf: scalars.Prose | None = None
    cpu: bool = False
    gpu: bool = False
    stack: scalars.Prose | None = None
    mpi: scalars.Prose | None = None
    name: scalars.Prose | None = None
    pip: tuple[PipRequirement, ...] = ()
    requirements: tuple[scalars.Prose, ...] = ()
    keep_image: bool = False
    conda_file: scalars.Prose | None = None
    apt: tuple[scalars.AptChoice, ...] = ()
    build_apt: tuple[scalars.AptChoice, ...] = ()
    env: dict[scalars.Variable, scalars.VariableValue] = Field(default_factory=dict)
    copied: Annotated[tuple[scalars.Copied, ...], Field(alias="copy")] = ()
    user: scalars.ImageUser | None = None
    test: TestSet | None = None

    @property
    def downloads_apt(self) -> bool:
        """Whether packages of the system are downloaded: for the image, or to build others."""
        return bool(self.apt or self.build_apt)

    @property
    def selection(self) -> Selection:
        versions = (self.tf,) if self.tf else ()
        names = (self.name,) if self.name else ()
        return Selection(
            tensorflow=versions,
            cpu=self.cpu,
            gpu=self.gpu,
            stack=self.stack,
            mpi=self.mpi,
            names=names,
        )


def parse_extension(values: dict[str, Any]) -> Extension:
    """Return what options say; InputError names the one that is wrong."""
    try:
        return Extension.model_validate(values)
    except ValidationError as error:
        option = str(error.errors()[0]["loc"][0]).replace("_", "-")
        raise InputError(f"--{option}: {scalars.refusal_reason(error)}.") from None


def read_extension(path: Path) -> Extension:
    """Return what a YAML file says; InputError names every fault, and files that are not there."""
    document = read_document(path)
    if isinstance(document.value, dict) and "as_documented" in document.value:
        raise document.reject([Fault(("as_documented",), _AS_DOCUMENTED)])
    extension, faults = check(document, Extension)
    for place, name in _named_files(extension) if extension else ():
        if not (path.absolute().parent / name).exists():
            message = f"{name!r} is not there; paths are relative to this file"
            faults.append(Fault(place, message))
    if extension is None or faults:
        raise document.reject(faults)
    return extension


def _named_files(extension: Extension) -> Iterator[tuple[Location, str]]:
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
    """Return the contents of the conda file, if there is one.

    ``python`` is the base's version. InputError: every entry that cannot be used.
    """
    if not extension.conda_file:
        return CondaPackages()
    python = "" if extension.keep_image else python
    return read_conda_file(folder / extension.conda_file, python, check_line)


def requested_lines(
    extension: Extension, folder: Path, conda: CondaPackages
) -> Iterator[RequirementLine]:
    """Yield the lines that ask for Python packages: options, files, and those of the conda file.

    Paths are from ``folder``. InputError: a file cannot be read.
    """
    for text in extension.pip:
        yield from expand_line(RequirementLine("--pip", text, folder))
    for name in extension.requirements:
        yield from read_lines(folder / name)
    for line in conda.lines:
        yield from expand_line(line)
