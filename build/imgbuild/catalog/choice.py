"""Which images serve a GPU, a Python and a list of packages, and why the others do not."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from imgbuild.dockerfile.lockfile import locked_packages
from imgbuild.dockerfile.resolver import parse_requirement
from imgbuild.errors import InputError
from imgbuild.files import read_named
from imgbuild.matrix.gpus import Gpu, KernelSupport, gpu_capability, kernel_support, service
from imgbuild.matrix.images import Image

#: Characters of a requirement; Python reads no number of over 4,300 digits.
_LONGEST = 2000
_SYSTEM = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}


@dataclass(frozen=True)
class Requirements:
    """What an image shall serve: requirements are by ``FILE:LINE``.

    ``no_gpu`` is why images for GPUs have none to run on.
    """

    gpus: tuple[Gpu, ...] = ()
    no_gpu: str = ""
    python: SpecifierSet = field(default_factory=SpecifierSet)
    requirements: tuple[tuple[str, Requirement], ...] = ()

    def refusals(self, image: Image, locks: Path) -> Iterator[tuple[str, str]]:
        """Yield why an image does not serve, and the version that it has for the required one."""
        if self.no_gpu and image.cuda:
            yield f"they are for GPUs: {self.no_gpu}", ""
        if self.gpus and not image.cuda:
            yield "they are for CPUs and would not use your GPU (--cpu includes them)", ""
        for gpu in self.gpus:
            support, why = service(image, gpu.capability, gpu.driver)
            if support is KernelSupport.NOTHING:
                yield why, ""
        python = image.version_of("python")
        if not self.python.contains(python):
            yield f"their Python is not {self.python}", python
        packages = locked_packages(image, locks)
        for where, requirement in self._applicable(image):
            found = packages.get(canonicalize_name(requirement.name))
            if found and not requirement.specifier.contains(found, prereleases=True):
                yield f"{where} wants {requirement}", found

    def added(self, image: Image, locks: Path) -> list[str]:
        """Return the required packages that an image does not have."""
        names = (canonicalize_name(one.name) for _, one in self._applicable(image))
        return [name for name in names if name not in locked_packages(image, locks)]

    def code(self, image: Image) -> str:
        """Return the kind of code that an image has for the GPUs."""
        known = [gpu.capability for gpu in self.gpus if gpu.capability]
        kinds = (kernel_support(one, image.wheel, image.cuda) for one in known if image.cuda)
        return ", ".join(dict.fromkeys(map(str, kinds))) or "-"

    def _applicable(self, image: Image) -> Iterator[tuple[str, Requirement]]:
        versions = {"python_version": image.python_minor, "implementation_name": "cpython"}
        here = {**_SYSTEM, **versions, "python_full_version": image.version_of("python")}
        for where, one in self.requirements:
            if not one.marker or one.marker.evaluate(here):
                yield where, one


def gpus_here() -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs of this machine, each kind once, or why there are none."""
    from imgbuild.doctor.gpu_checks import find_gpus  # noqa: PLC0415 - brings all of doctor

    gpus, problem = find_gpus()
    known = (gpu._replace(capability=gpu.capability or gpu_capability(gpu.name)) for gpu in gpus)
    return tuple(dict.fromkeys(known)), "" if gpus else problem or "this machine has no nvidia-smi"


def gpu_called(model: str | None, driver: str | None) -> Gpu:
    """Return a GPU by its model or compute capability, behind a driver; None: any."""
    if driver and not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})*", driver):
        raise InputError(f"--driver {driver!r} is no version: give 450.80.02, or 450.80.")
    capability = re.fullmatch(r"[0-9]{1,2}\.[0-9]", model or "")
    return Gpu(model or "any", driver, model if capability or not model else gpu_capability(model))


def python_range(text: str) -> SpecifierSet:
    """Return the versions that ``3.6``, ``3.6.15`` or ``>=3.8`` means."""
    number = re.fullmatch(r"[0-9]+(\.[0-9]+)?(\.[0-9]+)?", text)
    shown = text[:_LONGEST]
    wrong = InputError(f"--python {shown!r} is no version: give 3.6, 3.6.15 or >=3.8.")
    if shown != text:
        raise wrong
    try:
        return SpecifierSet(f"=={text}{'' if number[2] else '.*'}" if number else text)
    except InvalidSpecifier:
        raise wrong from None


def read_requirements(path: Path) -> Iterator[tuple[str, Requirement]]:
    """Yield the requirements of a file by their place; lines of options are not read."""
    text = read_named(path, f"--requirements {path}", "Name a file of pip's.")
    for number, line in enumerate(text.splitlines(), 1):
        text = re.sub(r"(^|\s)(#|--hash).*|\\$", "", line).strip()
        if len(text) > _LONGEST:
            raise InputError(f"{path}:{number}: over {_LONGEST} characters; no requirement has.")
        try:
            if text and not text.startswith("-"):
                yield f"{path.name}:{number}", parse_requirement(text)
        except ValueError as error:
            said = str(error).partition("\n")[0]
            raise InputError(f"{path}:{number}: {text!r} is no requirement: {said}.") from None
