"""Find images that fit a GPU, a Python and a list of packages, and say why others do not."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.files import read_user_file
from imgbuild.core.other_formats import is_conda_file
from imgbuild.core.project import Project
from imgbuild.engine.gpus import find_gpus
from imgbuild.extend.base_image import family_base
from imgbuild.extend.conda_file import read_conda_file
from imgbuild.extend.requirement_files import RequirementLine, image_facts, read_lines
from imgbuild.locks.requirement_rules import (
    OTHER_TENSORFLOW,
    PASSES,
    TENSORFLOW_NAMES,
    ImageFacts,
    judge_line,
    parse_line,
    repair_line,
)
from imgbuild.matrix.gpus import (
    Gpu,
    KernelSupport,
    compatibility,
    gpu_capability,
    kernel_support,
    why_no_image,
)
from imgbuild.matrix.images import Image
from imgbuild.matrix.selection import default_image, newest_images

#: Maximum length of a version: Python rejects numbers with more than 4,300 digits.
_LONGEST = 2000


@dataclass(frozen=True)
class Fit:
    """An image that will run, compared with the lines of a requirements file.

    ``code`` is the kind of code that it has for the GPUs. ``differing`` are the lines that the
    image does not satisfy, with the reasons. ``added`` are the packages that it does not have.
    """

    image: Image
    code: str
    differing: tuple[tuple[RequirementLine, str], ...]
    added: tuple[str, ...]


@dataclass(frozen=True)
class Requirements:
    """Requirements for an image: GPUs, versions of Python, and the lines of the file ``path``.

    ``no_gpu`` is the reason if this machine cannot run GPU images.
    """

    gpus: tuple[Gpu, ...] = ()
    no_gpu: str = ""
    python: SpecifierSet = field(default_factory=SpecifierSet)
    path: Path | None = None
    is_conda: bool = False
    lines: tuple[RequirementLine, ...] = ()

    def judge(self, image: Image, project: Project) -> "Fit | tuple[str, str]":
        """Return how an image fits, or why it will not run, with the image's own version.

        Among the lines, only those for TensorFlow decide whether it will run.
        """
        facts = image_facts(family_base(image, project))
        if refusal := next(self._refusals(image, facts), None):
            return refusal
        differing, added = list[tuple[RequirementLine, str]](), list[str]()
        for line in self.lines:
            verdict = judge_line(line.text, facts)
            if verdict.outcome != PASSES:
                differing.append((line, verdict.reason))
            elif _lacks(facts, line):
                added.append(line.name)
        return Fit(image, self._gpu_code(image), tuple(differing), tuple(dict.fromkeys(added)))

    def _refusals(self, image: Image, facts: ImageFacts) -> Iterator[tuple[str, str]]:
        """Yield the reasons why an image will not run, with the image's version, if any."""
        if self.no_gpu and image.cuda:
            yield f"GPU images: {self.no_gpu}", ""
        if self.gpus and not image.cuda:
            yield "CPU images, which would not use your GPU (add --cpu to include them)", ""
        for gpu in self.gpus:
            support, why = compatibility(image, gpu.capability, gpu.driver)
            if support is KernelSupport.NOTHING:
                yield why, ""
        python = image.version_of("python")
        if not self.python.contains(python):
            yield f"their Python is not {self.python}", python
        for line in self.lines:
            other = judge_line(line.text, facts).outcome == OTHER_TENSORFLOW
            if other and line.name in TENSORFLOW_NAMES:
                yield f"{line.place} requires {line.text}", facts.tensorflow

    def _gpu_code(self, image: Image) -> str:
        """Return the kind of code that an image has for the GPUs."""
        if not image.cuda:
            return "-"
        capabilities = (gpu.capability for gpu in self.gpus if gpu.capability)
        kinds = (kernel_support(capability, image.wheel, image.cuda) for capability in capabilities)
        return ", ".join(dict.fromkeys(map(str, kinds))) or "-"

    def best_fit(self, fits: Sequence[Fit]) -> Fit | None:
        """Return the fit with the fewest differing lines; among equals, the newest TensorFlow.

        If there are several such images, the defaults decide. If the file requires tensorflow-gpu,
        GPU images are preferred.
        """
        if any(line.name == "tensorflow-gpu" for line in self.lines):
            fits = [fit for fit in fits if fit.image.cuda] or fits
        fewest = min((len(fit.differing) for fit in fits), default=0)
        minors = {fit.image.minor for fit in fits if len(fit.differing) == fewest}
        images = [fit.image for fit in fits if fit.image.minor in minors]
        default = default_image(newest_images(images)) if images else None
        return next((fit for fit in fits if fit.image is default), None)

    def extend_command(self, fit: Fit) -> str:
        """Return the command that adds the rest of the file to an image."""
        option = "--conda-file" if self.is_conda else "--requirements"
        path = shlex.quote(str(self.path))
        words = ["imgbuild extend", fit.image.name, option, path]
        if fit.differing:
            words.append("--keep-image")
        words.append("-t me/train:1")
        return " ".join(words)


def gpus_here() -> tuple[tuple[Gpu, ...], str]:
    """Return the kinds of GPUs in this machine, or the reason why there are none.

    CheckFailedError: they are GPUs of machines with ARM processors.
    """
    gpus, problem = find_gpus()
    for gpu in gpus:
        _require_x86_64(gpu.name)
    known = (gpu._replace(capability=gpu.capability or gpu_capability(gpu.name)) for gpu in gpus)
    kinds = tuple(dict.fromkeys(known))
    if gpus:
        return kinds, ""
    return kinds, problem or "this machine has no nvidia-smi"


def _require_x86_64(model: str) -> None:
    if reason := why_no_image(model):
        raise CheckFailedError(reason)


def find_gpu(model: str | None, driver: str | None) -> Gpu:
    """Return a GPU by its model or compute capability, and its driver; None means any.

    CheckFailedError: it is a GPU of machines with ARM processors.
    """
    _require_x86_64(model or "")
    if driver and not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})*", driver):
        raise InputError(
            f"--driver {driver!r} is not a version: give, for example, 450.80.02 or 450.80."
        )
    capability = re.fullmatch(r"[0-9]{1,2}\.[0-9]", model or "")
    return Gpu(model or "any", driver, model if capability or not model else gpu_capability(model))


def python_range(text: str) -> SpecifierSet:
    """Parse ``3.6``, ``3.6.15`` or ``>=3.8`` into a range of versions."""
    number = re.fullmatch(r"[0-9]+(\.[0-9]+)?(\.[0-9]+)?", text)
    wrong = InputError(
        f"--python {text[:_LONGEST]!r} is not a version: give, for example, 3.6, 3.6.15 or >=3.8."
    )
    if len(text) > _LONGEST:
        raise wrong
    try:
        return SpecifierSet(f"=={text}{'' if number[2] else '.*'}" if number else text)
    except InvalidSpecifier:
        raise wrong from None


def read_requirements(path: Path) -> Requirements:
    """Read a requirements file, including the files that it includes, or a conda file.

    A conda file also sets the versions of Python. Lines with other options are ignored.

    InputError: a line is not a requirement, or the file has the format of another tool.
    """
    text = read_user_file(
        path, f"--requirements {path}", "Name a requirements file or a conda file."
    )
    if not is_conda_file(text):
        return Requirements(path=path, lines=tuple(_requirement_lines(path)))
    conda = read_conda_file(path, "", lambda _: None)
    lines = tuple(line for line in conda.lines if not line.text.startswith("-"))
    return Requirements(python=conda.python, path=path, is_conda=True, lines=lines)


def _requirement_lines(path: Path) -> Iterator[RequirementLine]:
    """Yield the lines that request a package, with common mistakes repaired."""
    for line in read_lines(path):
        if line.constrains or line.text.startswith("-"):
            continue
        meant, _ = repair_line(line.text)
        if meant and not parse_line(meant):
            raise InputError(
                f"{line.folder / line.place}: {line.text[:80]!r} is not a requirement."
            )
        if meant:
            yield line._replace(text=re.sub(r"\s+--hash[= ].*", "", meant))


def _lacks(facts: ImageFacts, line: RequirementLine) -> bool:
    """Return whether an image lacks the package of a line."""
    requirement = parse_line(line.text)
    marker = requirement.marker if requirement else None
    there = line.name in {*facts.packages, *TENSORFLOW_NAMES}
    return not there and (not marker or marker.evaluate(facts.environment))
