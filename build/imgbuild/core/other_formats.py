"""Recognize files of other tools that users pass as requirements files, by their contents."""

import re
from pathlib import Path

from imgbuild.core.errors import InputError

#: A line of ``conda list --export`` or ``--explicit``; it has a version and a build.
_CONDA_LINE = re.compile(
    r"@EXPLICIT|[\w.-]+==?[^\s=,]+=\S+|https?://[^\s#]+\.(?:tar\.bz2|conda)(?:#\S*)?"
)
# Each of these patterns matches a line in only one way, so matching takes linear time.
_EMPTY = r"[ \t\r]*(?:#.*)?\n"
_ENVIRONMENT = re.compile(rf"^dependencies:{_EMPTY}(?:{_EMPTY})*[ \t]*- ", re.MULTILINE)
_TABLE = r"^[ \t]*\[{}\][ \t\r]*(?:#.*)?$"


def _table(name: str) -> re.Pattern[str]:
    return re.compile(_TABLE.format(name), re.MULTILINE)


_EXPORT = "Convert it with `{}`, and use requirements.txt instead"
_WHEEL = (
    "Build a wheel of the project with `pip wheel --no-deps -w dist .`, and put its path, "
    "dist/NAME.whl, into a requirements file"
)
#: For each format: a pattern that recognizes it, its name, and how to use such a file.
_FORMATS = (
    (
        _table(r"\[packages\]"),
        "pylock.toml",
        _EXPORT.format("uv pip compile pylock.toml -o requirements.txt"),
    ),
    (
        re.compile(r"^metadata-files|^content-hash = ", re.MULTILINE),
        "poetry.lock",
        _EXPORT.format("poetry export --without-hashes -o requirements.txt"),
    ),
    (
        _table(r"\[package\]"),
        "uv.lock",
        _EXPORT.format("uv export --no-emit-project --no-hashes -o requirements.txt"),
    ),
    (
        re.compile(r'\A\s*\{\s*"_meta":'),
        "Pipfile.lock",
        _EXPORT.format("pipenv requirements | grep -v ^-i > requirements.txt"),
    ),
    (
        _table(r"(?:\[source\]|packages|dev-packages)"),
        "Pipfile",
        _EXPORT.format("pipenv lock && pipenv requirements | grep -v ^-i > requirements.txt"),
    ),
    (
        _table(r"tool\.poetry(?:\.dependencies)?"),
        "Poetry pyproject.toml",
        _EXPORT.format("poetry export --without-hashes -o requirements.txt"),
    ),
    (
        _table(r"(?:project|build-system|dependency-groups|tool\.[\w.-]+)"),
        "pyproject.toml",
        _EXPORT.format("uv export --no-emit-project --no-hashes -o requirements.txt"),
    ),
    (_table(r"(?:metadata|options(?:\.[\w.]+)?)"), "setup.cfg", _WHEEL),
    (
        re.compile(r"^(?:\w+\.)?setup\(", re.MULTILINE),
        "setup.py",
        _WHEEL,
    ),
)


def is_conda_list(text: str) -> bool:
    """Return whether a text is the output of ``conda list --export`` or ``--explicit``."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    return bool(lines) and all(map(_CONDA_LINE.fullmatch, lines))


def is_conda_file(text: str) -> bool:
    """Return whether a text is an ``environment.yml`` or the output of ``conda list``."""
    return bool(_ENVIRONMENT.search(text)) or is_conda_list(text)


def require_requirements(path: Path, text: str) -> None:
    """Raise InputError if a text is in another tool's format; the error says how to convert it."""
    if is_conda_file(text):
        raise _wrong_format(path, "conda file", f"Use --conda-file {path}")
    for form, name, way in _FORMATS:
        if form.search(text):
            raise _wrong_format(path, name, way)


def _wrong_format(path: Path, name: str, way: str) -> InputError:
    return InputError(f"{path}: this is a {name}, not a pip requirements file. {way}.")
