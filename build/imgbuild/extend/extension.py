"""Read the additions to an image from a YAML file or from options."""

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

#: The fields that add something to the image.
_ADDED = {"pip", "requirements", "conda_file", "apt", "env", "copied", "user"}
#: The error for a key that earlier versions supported.
_AS_DOCUMENTED = (
    "the key 'as_documented' was removed. Images are built with the corrected pins only; `imgbuild "
    "show IMAGE` lists the documented pins, and why they cannot work"
)
#: The base's suites that run in the result: only the short ones, all, or none.
TestSet = Literal["short", "all", "none"]
PipRequirement = Annotated[str, AfterValidator(plain_requirement)]


class Extension(Section):
    """An image and its additions; the keys of a file are the options of the command.

    Paths are relative to the file, or to the current folder for options.
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
        """Whether system packages are downloaded, for the image or to build other packages."""
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
    """Parse the values of options; InputError names the wrong option."""
    try:
        return Extension.model_validate(values)
    except ValidationError as error:
        option = str(error.errors()[0]["loc"][0]).replace("_", "-")
        raise InputError(f"--{option}: {scalars.refusal_reason(error)}.") from None


def read_extension(path: Path) -> Extension:
    """Read a YAML file; InputError names every fault and every missing file."""
    document = read_document(path)
    if isinstance(document.value, dict) and "as_documented" in document.value:
        raise document.reject([Fault(("as_documented",), _AS_DOCUMENTED)])
    extension, faults = check(document, Extension)
    for place, name in _named_files(extension) if extension else ():
        if not (path.absolute().parent / name).exists():
            message = f"{name!r} does not exist; paths are relative to this file"
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
    """Check the use of an extension in ``folder``.

    InputError: there is nothing to add, a file is not in ``folder``, or the tag belongs to the
        matrix's ``repository``.
    """
    if not any(getattr(extension, field) for field in _ADDED):
        raise InputError("Nothing to add: give --pip, --requirements, --apt, --env, --copy, …")
    for pair in extension.copied:
        source_path(pair.partition(":")[0], folder)
    name = (extension.tag or "").rpartition(":")[0]
    if name and familiar_name(name) == familiar_name(repository):
        raise InputError(
            f"The tag {extension.tag}: names of {repository} are reserved for the images in "
            "matrix.yaml. Choose another tag, for example me/train:1."
        )


def read_conda_packages(extension: Extension, folder: Path, python: str) -> CondaPackages:
    """Return the contents of the conda file; empty if there is none.

    ``python`` is the base's version. InputError: the message names all entries that cannot be used.
    """
    if not extension.conda_file:
        return CondaPackages()
    python = "" if extension.keep_image else python
    return read_conda_file(folder / extension.conda_file, python, check_line)


def requested_lines(
    extension: Extension, folder: Path, conda: CondaPackages
) -> Iterator[RequirementLine]:
    """Yield the lines that request Python packages: options, requirements files, the conda file.

    Paths are relative to ``folder``. InputError: a file cannot be read.
    """
    for text in extension.pip:
        yield from expand_line(RequirementLine("--pip", text, folder))
    for name in extension.requirements:
        yield from read_lines(folder / name)
    for line in conda.lines:
        yield from expand_line(line)
