"""Read requirement files as people have them, and judge each line against the base."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename

from imgbuild.dockerfile.constraints import OTHER_TENSORFLOWS, images_with_companion
from imgbuild.dockerfile.resolver import parse_requirement
from imgbuild.errors import InputError
from imgbuild.extend.base_image import BaseImage
from imgbuild.files import file_sha256, read_named
from imgbuild.matrix.images import all_images
from imgbuild.other_formats import require_requirements
from imgbuild.requirement_rules import (
    DIFFERS,
    OTHER_TENSORFLOW,
    TENSORFLOW_NAMES,
    ImageFacts,
    judge_line,
    logical_lines,
    parse_constraints,
    parse_line,
    repair_line,
)

_OTHER_FILE = re.compile(r"(-r|-c|--requirement|--constraint)[ =]?\s*((?!\S*://)[^\s\0]+)")
_HASHES = re.compile(r"(?<!\s)(\s+--hash[= ]sha256:[0-9a-f]{64})+$")
#: Characters of a line, of which a requirement without its hashes may have a part; files that one
#: file leads to, and how many of them may include each other.
_LONGEST_LINE, _LONGEST, _MOST_FILES, _DEEPEST = 100_000, 2000, 500, 20
#: What BuildKit mounts as it is written.
_WHEEL = re.compile(r"[A-Za-z0-9._@+/-]+\.whl")
_INDEX = re.compile(r"-i|-f|--(extra-)?index-url|--find-links|--no-index|--trusted-host")
_SOURCE = re.compile(r"(?:-e|--editable)[ =]?\s*(.+)|([.~/].*|\S*://.+)|\S+ *@ *(\S+)")
#: Options without which the same packages are found: the index is a setting of imgbuild. With
#: another index, a package of the same name could come from the wrong one.
_PASSED_OVER = re.compile(
    r"(?:-f|--find-links|--trusted-host|--prefer-binary)\b.*"
    r"|(?:-i|--index-url)[ =]?\s*https://pypi\.(?:python\.)?org/simple/?"
)


def plain_requirement(value: str) -> str:
    """Return a requirement, or the path of a wheel, as it is written.

    ValueError: it cannot be locked by hash; the message names the way for what it is.
    """
    text = _HASHES.sub("", value)
    if len(text) > _LONGEST:
        raise ValueError(f"{value[:80]!r}… is over {_LONGEST} characters; no requirement is")
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


def check_line(text: str) -> None:
    """Raise ValueError for a line that `RequirementReader` refuses, whatever the base is."""
    _require_short(text)
    options = (_PASSED_OVER, _OTHER_FILE, re.compile("--require-hashes"))
    if not any(option.fullmatch(text) for option in options):
        meant, _ = repair_line(text)
        if meant:
            plain_requirement(meant)


def _require_short(text: str) -> None:
    if len(text) > _LONGEST_LINE:
        raise ValueError(f"{text[:80]!r}… is over {_LONGEST_LINE} characters; no line is")


class RequirementReader:
    """Reads lines in pip's format, and judges them by the rules of `requirement_rules`.

    It yields what is left of them: a constraint has ``-c `` before it, a wheel is its path below
    ``folder`` and its hash. ``log`` gets a sentence for each line that is read as another one.
    """

    def __init__(self, base: BaseImage, folder: Path, log: Callable[[str], None]) -> None:
        self.base, self.folder, self.log = base, folder, log
        self._facts = image_facts(base)
        self._differing = list[str]()
        self._refused = list[str]()
        self._files = 0

    def read_file(self, path: Path, *above: str, place: str = "") -> Iterator[str]:
        """Yield the requirements of a file, and of those that it includes.

        ``place`` is where another file, one of ``above``, includes this one. InputError: a line is
        no requirement that can be locked by its hash.
        """
        above = (*above, os.path.realpath(path))
        self._files += 1
        if len(above) > _DEEPEST or self._files > _MOST_FILES:
            raise InputError(
                f"{place}{path}: over {_DEEPEST} files that include each other, or {_MOST_FILES} "
                "files in all. Write their lines into fewer files."
            )
        content = read_named(path, f"{place}{path}")
        require_requirements(path, content)
        for number, text in logical_lines(content):
            yield from self.read_line(f"{path.name}:{number}", text, path.parent, *above)

    def read_line(self, place: str, text: str, here: Path, *above: str) -> Iterator[str]:
        """Yield the requirement of a line, or those of the file that it includes.

        Paths in the line are from the folder ``here``.
        """
        try:
            _require_short(text)
        except ValueError as error:
            raise InputError(f"{place}: {error}.") from None
        if text == "--require-hashes":
            return
        if _PASSED_OVER.fullmatch(text):
            option = re.split("[ =]", text)[0]
            self.log(f"{place}: {option} is ignored: the index is a setting (docs/guide.md)")
        elif other := _OTHER_FILE.fullmatch(text):
            if os.path.realpath(here / other[2]) in above:
                raise InputError(f"{place}: {other[2]} includes itself. Remove the line.")
            prefix = "-c " if other[1] in {"-c", "--constraint"} else ""
            for line in self.read_file(here / other[2], *above, place=f"{place}: "):
                yield prefix + line.removeprefix(prefix)
        else:
            yield from self._read_requirement(place, text, here)

    def _read_requirement(self, place: str, text: str, here: Path) -> Iterator[str]:
        meant, note = repair_line(text)
        if note:
            self.log(f"{place}: {note}")
        if not meant:
            return
        try:
            line = " ".join(plain_requirement(meant).split())
            if _WHEEL.match(line):
                line = _wheel(_HASHES.sub("", line), here, self.folder)
            verdict = judge_line(line, self._facts)
        except ValueError as error:  # also of a marker whose values cannot be compared
            raise InputError(f"{place}: {error}.") from None
        answer = f"{place}: {line}: {verdict.reason}"
        if verdict.outcome == DIFFERS:
            self._differing.append(answer)
        elif verdict.outcome == OTHER_TENSORFLOW:
            self._refused.append(answer + self._images_for(line))
        elif verdict.reason:
            self.log(answer)
        if verdict.kept:
            yield verdict.kept

    def _images_for(self, line: str) -> str:
        """Return the options that select the images which fulfil a refused line."""
        requirement, image = parse_line(line), self.base.image
        if not requirement or not image:
            return ""
        name = str(canonicalize_name(requirement.name))
        if name in TENSORFLOW_NAMES:
            others = [
                other
                for other in all_images(image.matrix)
                if other.variant == image.variant
                and _fulfils(other.tensorflow, requirement.specifier)
            ]
        elif name in OTHER_TENSORFLOWS:
            return ""
        else:
            others = images_with_companion(name, image)
        options = dict.fromkeys(f"--tf {other.minor} --stack {other.stack}" for other in others)
        return f"; use {' or '.join(options)}" if options else "; no image has it"

    def require_fit(self, *, keep_image: bool) -> None:
        """Put the lines aside that differ from the base, if ``keep_image``; else InputError.

        InputError names all of them, and those that need another TensorFlow.
        """
        lines = [*self._refused, *(() if keep_image else self._differing)]
        for line in self._differing:
            if keep_image:
                self.log(f"put aside: {line}")
        if lines:
            listed = "".join(f"\n  {line}" for line in lines)
            way = "Change these lines, or remove them."
            if self._differing and not keep_image:
                way = "Change these lines, or put them aside: --keep-image keeps the image's "
                way += "versions." if not self._refused else "versions of all but TensorFlow."
            raise InputError(
                f"These lines do not fit {self.base.name}:{listed}\n{way} Nothing was changed."
            )


def image_facts(base: BaseImage) -> ImageFacts:
    """Return what the rules need of a base; without constraints, all its packages stay."""
    packages = dict(base.packages)
    constraints = parse_constraints(base.constraints)
    if not constraints:
        constraints = {name: SpecifierSet(f"=={version}") for name, version in packages.items()}
        constraints |= {name: SpecifierSet("<0") for name in {*OTHER_TENSORFLOWS} - {*packages}}
    environment = {
        "python_version": ".".join(base.python.split(".")[:2]),
        "python_full_version": base.python,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        # As uv has them: they are of the machine that runs the image.
        "platform_release": "",
        "platform_version": "",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    return ImageFacts(packages, constraints, environment)


def _fulfils(version: str, asked: SpecifierSet) -> bool:
    facts = ImageFacts({"tensorflow": version}, {})
    return judge_line(f"tensorflow{asked}", facts).outcome != OTHER_TENSORFLOW


def wheel_paths(requested: Iterable[str]) -> list[str]:
    """Return the wheels among requirements as `RequirementReader` yields them."""
    return [line.split()[0] for line in requested if line.partition(" ")[0].endswith(".whl")]


def _wheel(text: str, here: Path, folder: Path) -> str:
    path = os.path.relpath(here / text, folder)
    if path.startswith("..") or not _WHEEL.fullmatch(path) or not (folder / path).is_file():
        raise ValueError(f"{text}: no file below {folder}, which the build reads; copy it there")
    parse_wheel_filename(Path(path).name)
    return f"{path} --hash=sha256:{file_sha256(folder / path)}"
