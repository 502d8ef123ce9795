"""The part of a CPython prefix that an image needs."""

import os
import re
import shutil
from pathlib import Path

#: What is taken, relative to the prefix; ``{v}`` is the version, such as ``3\.6``. A list of what
#: to take, since a prefix may be /usr/local with anything beside. Scripts of pip, setuptools and
#: IDLE, manual pages and the gdb helper are not in it.
_TAKEN = (
    r"bin/python{v}m?",
    r"bin/python{v}m?-config",
    r"bin/2to3(-{v})?",
    r"bin/pydoc(3|{v})?",
    r"include/python{v}m?(/.*)?",
    r"lib/libpython({v}m?|3)\.so[.0-9]*",
    r"lib/pkgconfig/python-?(3|{v}m?)(-embed)?\.pc",
    r"lib/python{v}(/.*)?",
)
#: What is left out, relative to ``lib/pythonX.Y``: tests, what needs a display, static libraries
#: and objects, Windows installers, and what pip installed. The wheels of ensurepip (2 MB) stay:
#: ``venv`` and the pip of the image come from them.
_LEFT_OUT = re.compile(
    r"""(.*/)?__pycache__ | .*\.py[co]
    | (.*/)?(test|tests) | (idlelib|tkinter|turtledemo|turtle\.py)
    | lib-dynload/(_tkinter|_test.*|_ctypes_test|xxlimited.*)\.cpython-.*
    | config-[^/]*/.*\.[ao] | distutils/command/wininst-.*\.exe
    | site-packages/.*""",
    re.VERBOSE,
)
_LINKS = {
    "bin/python": "python{v}",
    "bin/python3": "python{v}",
    "bin/python-config": "python{v}-config",
    "bin/python3-config": "python{v}-config",
}


def copy_prefix(prefix: Path, minor: str, target: Path) -> None:
    """Copy what an image needs of ``prefix`` (of Python ``minor``, such as 3.6) into ``target``.

    Modes become 0755 and 0644, links into the prefix become relative, links to what was left out
    vanish.
    """
    taken = re.compile("|".join(_TAKEN).format(v=re.escape(minor)))
    library = f"lib/python{minor}/"
    for path in _walk(prefix, prefix, taken, library):
        _copy(prefix, path, target / path.relative_to(prefix))
    (target / library / "site-packages").mkdir(parents=True, exist_ok=True)
    for link, to in _LINKS.items():
        place = target / link
        place.unlink(missing_ok=True)
        place.symlink_to(to.format(v=minor))
    _remove_dangling(target)


def _walk(prefix: Path, folder: Path, taken: re.Pattern[str], library: str) -> list[Path]:
    found: list[Path] = []
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = Path(entry.path)
        name = path.relative_to(prefix).as_posix()
        inside = name.removeprefix(library) if name.startswith(library) else ""
        if inside and _LEFT_OUT.fullmatch(inside):
            continue
        if entry.is_dir(follow_symlinks=False):
            if folder != prefix or name in {"bin", "include", "lib"}:
                found.extend(_walk(prefix, path, taken, library))
        elif taken.fullmatch(name):
            found.append(path)
    return found


def _copy(prefix: Path, source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(_relative_link(prefix, source))
        return
    shutil.copyfile(source, target)
    target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def _relative_link(prefix: Path, link: Path) -> str:
    to = link.readlink()
    if to.is_absolute() and to.is_relative_to(prefix):
        return os.path.relpath(to, link.parent)
    return str(to)


def _remove_dangling(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_symlink() and not path.exists():
            path.unlink()
