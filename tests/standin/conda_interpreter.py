"""The interpreter of the stand-in for Anaconda's packages: a CPython prefix of this machine.

Its text files name Anaconda's placeholder, and it brings the shared libraries of Debian that its
modules load: a conda environment needs nothing of the system but libc.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from imgbuild.core.settings import PrefixInterpreter
from imgbuild.inputs.local_prefix import find_prefixes
from standin.context import Context

#: What conda-build records as the prefix of a package's files.
PLACEHOLDER = "/opt/anaconda1anaconda2anaconda3"
_LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "site-packages", "*.a",
    "*.o", "_tkinter*", "idle*", "pip", "pip3*", "easy_install*", "pyvenv*", "*-gdb.py",
)  # fmt: skip
_SYSTEM = re.compile(
    r"(linux-vdso|ld-linux.*|lib(c|m|dl|pthread|rt|util|resolv|crypt))\.so.*|libpython.*"
)


def interpreter(context: Context, minor: str) -> tuple[str, Path]:
    """Return version and prefix of a CPython X.Y of this machine; RuntimeError if it has none."""
    for version, choice in context.settings.cpython.items():
        if version.startswith(f"{minor}.") and isinstance(choice, PrefixInterpreter):
            return version, Path(choice.path)
    for version in context.matrix.python:
        if version.startswith(f"{minor}.") and find_prefixes(version):
            return version, find_prefixes(version)[0]
    raise RuntimeError(f"this machine has no CPython {minor} prefix: `imgbuild doctor --write`")


def write_tree(context: Context, minor: str, target: Path) -> None:
    """Write the interpreter to ``target``; its files name :data:`PLACEHOLDER` as their prefix."""
    _, prefix = interpreter(context, minor)
    for part in ("bin", "include", "lib"):
        shutil.copytree(prefix / part, target / part, symlinks=True, ignore=_LEFT_OUT)
    (target / "lib" / f"python{minor}" / "site-packages").mkdir()
    for path in (path for path in target.rglob("*") if path.is_file() and not path.is_symlink()):
        path.chmod(path.stat().st_mode | 0o200)
        if is_elf(path):  # it finds libpython from where it is
            subprocess.run(["strip", "--strip-all", path], check=True)
            set_search_path([path], f"$ORIGIN/{os.path.relpath(target / 'lib', path.parent)}")
        elif str(prefix).encode() in (content := path.read_bytes()):
            path.write_bytes(content.replace(str(prefix).encode(), PLACEHOLDER.encode()))
    for module in target.glob("lib/python*/lib-dynload/nis.*"):
        module.unlink()  # Sun's yellow pages would bring Kerberos


def libraries_of(tree: Path) -> dict[str, Path]:
    """Return the shared libraries that the modules in ``tree`` load from the system, by soname."""
    modules = [path for path in tree.rglob("*.so*") if path.is_file() and not path.is_symlink()]
    command = ["ldd", *map(str, modules)]
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = re.findall(r"^\s(\S+) => (/\S+) \(", done.stdout, re.MULTILINE)
    return {
        name: Path(path).resolve()
        for name, path in found
        if not _SYSTEM.fullmatch(name) and not path.startswith(str(tree))
    }


def copy_libraries(libraries: dict[str, Path], folder: Path) -> None:
    """Copy libraries under their sonames; each looks for the others beside itself."""
    folder.mkdir(parents=True, exist_ok=True)
    for soname, path in libraries.items():
        shutil.copyfile(path, folder / soname)
    set_search_path([folder / soname for soname in sorted(libraries)], "$ORIGIN")


def is_elf(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def set_search_path(files: list[Path], search_path: str) -> None:
    """Let ``files`` look for their libraries in ``search_path``."""
    if files:  # patchelf refuses a call without one
        subprocess.run(["patchelf", "--set-rpath", search_path, *files], check=True)
