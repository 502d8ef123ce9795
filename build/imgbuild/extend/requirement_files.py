"""Read users' requirements files, and compare each line with the base image."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename

from imgbuild.core.errors import InputError
from imgbuild.core.files import file_sha256, read_user_file
from imgbuild.core.other_formats import require_requirements
from imgbuild.extend.base_image import BaseImage
from imgbuild.locks.constraints import OTHER_TENSORFLOWS, images_with_companion
from imgbuild.locks.requirement_rules import (
    DIFFERS,
    OTHER_TENSORFLOW,
    TENSORFLOW_NAMES,
    ImageFacts,
    judge_line,
    logical_lines,
    parse_line,
    repair_line,
)
from imgbuild.locks.resolver import parse_requirement
from imgbuild.matrix.evidence import MACHINES
from imgbuild.matrix.images import all_images

_OTHER_FILE = re.compile(r"(-r|-c|--requirement|--constraint)[ =]?\s*((?!\S*://)[^\s\0]+)")
_HASHES = re.compile(r"(?<!\s)(\s+--hash[= ]sha256:[0-9a-f]{64})+$")
#: Limits: characters of a line, characters of a requirement without hashes, number of included
#: files, and nesting depth of includes.
_LONGEST_LINE, _LONGEST, _MOST_FILES, _DEEPEST = 100_000, 2000, 500, 20
#: The path of a wheel that BuildKit can mount without quoting.
_WHEEL = re.compile(r"[A-Za-z0-9._@+/-]+\.whl")
_INDEX = re.compile(r"-i|-f|--(extra-)?index-url|--find-links|--no-index|--trusted-host")
_SOURCE = re.compile(r"(?:-e|--editable)[ =]?\s*(.+)|([.~/].*|\S*://.+)|\S+ *@ *(\S+)")
#: Options that are ignored, because the index is a setting of imgbuild.
_PASSED_OVER = re.compile(r"(?:-f|--find-links|--trusted-host|--prefer-binary)\b.*")


def plain_requirement(value: str) -> str:
    """Return the value unchanged if it is a requirement or the path of a wheel.

    ValueError: it cannot be locked by hash; the message suggests an alternative.
    """
    text = _HASHES.sub("", value)
    if len(text) > _LONGEST:
        raise ValueError(f"{value[:80]!r}… has more than {_LONGEST} characters")
    try:
        if _WHEEL.fullmatch(text) or (value.isprintable() and not parse_requirement(text).url):
            return value
    except ValueError:
        pass
    way = "write it as keras==2.3.1, or leave this line out"
    if _INDEX.match(text):
        way = "set the index as the mirror `python-index` in the settings (docs/mirrors.md), or "
        way += "download the wheel (`pip download --no-deps NAME`) and write its path; remove the "
        way += "line if it names the default index"
    elif source := _SOURCE.fullmatch(text):
        way = f"build a wheel, `pip wheel --no-deps -w dist {next(filter(None, source.groups()))}`"
        way += ", and write its path, dist/NAME.whl; or install it in a Dockerfile FROM the image"
    raise ValueError(
        f"{value!r} is not a requirement of the package index, and cannot be locked by hash: {way}"
    )


def check_line(text: str) -> None:
    """Raise ValueError for a line that `judge_lines` rejects for every base."""
    _require_short(text)
    options = (_PASSED_OVER, _OTHER_FILE, re.compile("--require-hashes"))
    if not any(option.fullmatch(text) for option in options):
        meant, _ = repair_line(text)
        if meant:
            plain_requirement(meant)


def _require_short(text: str) -> None:
    if len(text) > _LONGEST_LINE:
        raise ValueError(f"{text[:80]!r}… has more than {_LONGEST_LINE} characters")


class RequirementLine(NamedTuple):
    """A line of a requirements file; ``place`` is ``FILE:LINE``.

    Paths in the line are relative to ``folder``. ``constrains`` is true in files of ``-c``, where
    lines constrain versions but request no packages.
    """

    place: str
    text: str
    folder: Path
    constrains: bool = False

    @property
    def name(self) -> str:
        """The canonical name of the package; empty if the line is not a requirement."""
        requirement = parse_line(self.text)
        return canonicalize_name(requirement.name) if requirement else ""


def read_lines(path: Path) -> Iterator[RequirementLine]:
    """Yield the lines of a requirements file and of the files that it includes.

    InputError: a file cannot be read, has the format of another tool, or includes itself.
    """
    yield from _read_file(path, "", (), [], constrains=False)


def expand_line(line: RequirementLine) -> Iterator[RequirementLine]:
    """Yield the line, or the lines of the file that it includes. Errors: see `read_lines`."""
    yield from _expand(line, (), [])


def _read_file(
    path: Path, place: str, above: tuple[str, ...], files: list[Path], *, constrains: bool
) -> Iterator[RequirementLine]:
    """Yield the lines of a file that was included at ``place``.

    ``above`` are the including files. Each file that is read is appended to ``files``.
    """
    if (real := os.path.realpath(path)) in above:
        raise InputError(f"{place}{path.name} includes itself. Remove the line.")
    files.append(path)
    if len(above) >= _DEEPEST or len(files) > _MOST_FILES:
        raise InputError(
            f"{place}{path}: there are more than {_DEEPEST} files that include each other, or more "
            f"than {_MOST_FILES} files in all. Write their lines into fewer files."
        )
    content = read_user_file(path, f"{place}{path}")
    require_requirements(path, content)
    for number, text in logical_lines(content):
        line = RequirementLine(f"{path.name}:{number}", text, path.parent, constrains)
        yield from _expand(line, (*above, real), files)


def _expand(
    line: RequirementLine, above: tuple[str, ...], files: list[Path]
) -> Iterator[RequirementLine]:
    try:
        _require_short(line.text)
    except ValueError as error:
        raise InputError(f"{line.place}: {error}.") from None
    if other := _OTHER_FILE.fullmatch(line.text):
        constrains = line.constrains or other[1] in {"-c", "--constraint"}
        path, place = line.folder / other[2], f"{line.place}: "
        yield from _read_file(path, place, above, files, constrains=constrains)
    elif line.text != "--require-hashes":
        yield line


def judge_lines(
    lines: Iterable[RequirementLine],
    base: BaseImage,
    folder: Path,
    log: Callable[[str], None],
    *,
    keep_image: bool = False,
) -> tuple[str, ...]:
    """Return the requirements that the base does not satisfy, by the rules of `requirement_rules`.

    They are in pip's format. A constraint begins with ``-c ``, and a wheel is its path below
    ``folder`` with its hash. With ``keep_image``, lines that differ from the base are put aside.
    ``log`` is called for each line that is put aside or changed.

    InputError: a line cannot be locked by hash, differs from the base, or needs another TensorFlow;
        the message names all lines that differ.
    """
    facts = image_facts(base)
    requirements, refused, differing = list[str](), list[str](), list[str]()
    for line in lines:
        text = _requirement_text(line, folder, log)
        if not text:
            continue
        try:
            verdict = judge_line(text, facts)
        except ValueError as error:  # a marker has values that cannot be compared
            raise InputError(f"{line.place}: {error}.") from None
        answer = f"{line.place}: {text}: {verdict.reason}"
        if verdict.outcome == DIFFERS:
            differing.append(answer)
        elif verdict.outcome == OTHER_TENSORFLOW:
            refused.append(answer + _images_for(text, base))
        elif verdict.reason:
            log(answer)
        if verdict.kept:
            requirements.append(f"-c {verdict.kept}" if line.constrains else verdict.kept)
    if keep_image:
        for answer in differing:
            log(f"put aside: {answer}")
        differing = []
    _require_fit(refused, differing, base)
    return tuple(dict.fromkeys(requirements))


def _require_fit(refused: Sequence[str], differing: Sequence[str], base: BaseImage) -> None:
    """Raise InputError if a line needs another TensorFlow, or differs from the base."""
    if not refused and not differing:
        return
    way = "Change these lines, or remove them."
    if differing:
        kept = "versions, except TensorFlow's." if refused else "versions."
        way = "Change these lines, or put them aside: --keep-image keeps the image's "
        way += kept
    listed = "".join(f"\n  {answer}" for answer in (*refused, *differing))
    raise InputError(f"These lines do not fit {base.name}:{listed}\n{way} Nothing was changed.")


def _requirement_text(line: RequirementLine, folder: Path, log: Callable[[str], None]) -> str:
    """Return the requirement in a line; empty if it requests no package."""
    if _PASSED_OVER.fullmatch(line.text):
        option = re.split("[ =]", line.text)[0]
        log(f"{line.place}: {option} is ignored: the index is a setting (docs/mirrors.md)")
        return ""
    meant, note = repair_line(line.text)
    if note:
        log(f"{line.place}: {note}")
    if not meant:
        return ""
    try:
        text = " ".join(plain_requirement(meant).split())
        return _hash_wheel(text, line.folder, folder) if _WHEEL.match(text) else text
    except ValueError as error:
        raise InputError(f"{line.place}: {error}.") from None


def _images_for(line: str, base: BaseImage) -> str:
    """Return the options that select images which satisfy a rejected line."""
    requirement, image = parse_line(line), base.image
    if not requirement or not image:
        return ""
    name = str(canonicalize_name(requirement.name))
    if name in TENSORFLOW_NAMES:
        others = [
            other
            for other in all_images(image.matrix)
            if other.variant == image.variant and _fulfils(other.tensorflow, requirement.specifier)
        ]
    elif name in OTHER_TENSORFLOWS:
        return ""
    else:
        others = images_with_companion(name, image)
    options = dict.fromkeys(f"--tf {other.minor} --stack {other.stack}" for other in others)
    return f"; use {' or '.join(options)}" if options else "; no image has it"


def image_facts(base: BaseImage) -> ImageFacts:
    """Convert a base into the form that the rules use."""
    packages = dict(base.packages)
    kept = {name: f"=={version}" for name, version in packages.items()}
    bounds = {name: text for name, text in {**kept, **base.bounds}.items() if text}
    constraints = {name: SpecifierSet(text) for name, text in bounds.items()}
    return ImageFacts(packages, constraints, marker_environment(base.python, base.machine))


def marker_environment(python: str, machine: str = MACHINES["amd64"]) -> dict[str, str]:
    """Return the values of markers in an image with a version of Python."""
    return {
        "python_version": ".".join(python.split(".")[:2]),
        "python_full_version": python,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
        # uv leaves these empty, because they depend on the machine that runs the image.
        "platform_release": "",
        "platform_version": "",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }


def _fulfils(version: str, requested: SpecifierSet) -> bool:
    facts = ImageFacts({"tensorflow": version}, {})
    return judge_line(f"tensorflow{requested}", facts).outcome != OTHER_TENSORFLOW


def wheel_paths(requested: Iterable[str]) -> list[str]:
    """Return the paths of wheels among the requirements that `judge_lines` returned."""
    return [line.split()[0] for line in requested if line.partition(" ")[0].endswith(".whl")]


def _hash_wheel(text: str, here: Path, folder: Path) -> str:
    """Return the path of a wheel below ``folder`` with its hash."""
    wheel = _HASHES.sub("", text)
    path = os.path.relpath(here / wheel, folder)
    if path.startswith("..") or not _WHEEL.fullmatch(path) or not (folder / path).is_file():
        raise ValueError(f"{wheel}: no file below {folder}, which the build reads; copy it there")
    parse_wheel_filename(Path(path).name)
    return f"{path} --hash=sha256:{file_sha256(folder / path)}"
