"""Anaconda's site: the packages of the matrix's conda interpreters, and Miniconda's installer."""

import bz2
import hashlib
import json
import re
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from imgbuild.matrix.images import minor_of
from imgbuild.matrix.model import Matrix
from standin.conda_interpreter import (
    PLACEHOLDER,
    copy_libraries,
    interpreter,
    libraries_of,
    write_tree,
)
from standin.conda_package import has_placeholder, parse_name, write_package, write_tar_bz2
from standin.context import HERE, Context
from standin.workbench import scratch

UPSTREAM = "anaconda"
_SOURCES = (
    "anaconda.py", "conda_interpreter.py", "conda_package.py", "files/conda.in",
    "files/miniconda.sh",
)  # fmt: skip
_MINICONDA = re.compile(r"Miniconda\d-(.*)-Linux-x86_64\.sh")


def anaconda_site(context: Context) -> Path:
    """Return the folder that stands for repo.anaconda.com."""
    packages = _packages(context.matrix)
    installers = _installers(context.matrix)
    found = {minor: str(interpreter(context, minor)) for minor in packages}
    made_from = [packages, installers, found]

    def make(folder: Path) -> None:
        for minor, paths in packages.items():
            with scratch() as work:
                write_tree(context, minor, work / "tree")
                _write_channel(folder, paths, work / "tree")
                _write_installers(folder, installers, work / "tree")

    return context.stored(UPSTREAM, made_from, _SOURCES, make)


def _write_channel(folder: Path, paths: list[str], tree: Path) -> None:
    entries: dict[str, Any] = {}
    for path in paths:
        package = parse_name(path.rpartition("/")[2])
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with scratch() as work:
            if package.name == "python":  # with the libraries that others bring, too
                shutil.copytree(tree, work / "tree", symlinks=True)
                copy_libraries(libraries_of(tree), work / "tree" / "lib")
            note = work / "tree" / "share" / "stand-in" / package.name
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(f"{package.name} is a stand-in for tests.\n", encoding="utf-8")
            entries[package.file] = write_package(work / "tree", package, target)
    channel = folder / PurePosixPath(paths[0]).parent
    repodata = {"info": {"subdir": channel.name}, "packages": entries, "packages.conda": {}}
    text = json.dumps(repodata, indent=1, sort_keys=True).encode()
    (channel / "repodata.json.bz2").write_bytes(bz2.compress(text))


def _write_installers(folder: Path, paths: list[str], tree: Path) -> None:
    payload = tree.parent / "root.tar.bz2"
    program = (HERE / "files" / "conda.in").read_text(encoding="utf-8")
    conda = tree / "bin" / "conda"
    conda.write_text(program.replace("{prefix}", PLACEHOLDER), encoding="utf-8")
    conda.chmod(0o755)
    copy_libraries(libraries_of(tree), tree / "lib")
    files = [path for path in sorted(tree.rglob("*")) if path.is_file() and has_placeholder(path)]
    names = "".join(f"{path.relative_to(tree).as_posix()}\n" for path in files)
    write_tar_bz2(tree, {"pkgs/has_prefix": names}, payload)
    for path in paths:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_header(target.name, payload.read_bytes()) + payload.read_bytes())


def _header(file: str, payload: bytes) -> bytes:
    text = (HERE / "files" / "miniconda.sh").read_text(encoding="utf-8")
    version = _MINICONDA.fullmatch(file)
    values = {
        "version": version[1] if version else "unknown",
        "lines": str(text.count("\n") + 1),
        "md5": hashlib.md5(payload, usedforsecurity=False).hexdigest(),
        "placeholder": PLACEHOLDER,
    }
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], text).encode()


def _packages(matrix: Matrix) -> dict[str, list[str]]:
    """Return the paths of the packages below the site's URL, by Python's minor version."""
    found: dict[str, list[str]] = {}
    for version, python in matrix.python.items():
        if python.origin == "conda":
            paths = [_below(matrix, url) for url in python.packages]
            found[minor_of(version)] = [path for path in paths if path]
    return found


def _installers(matrix: Matrix) -> list[str]:
    paths = [_below(matrix, source.url) for source in matrix.sources.values()]
    return [path for path in paths if _MINICONDA.fullmatch(path.rpartition("/")[2])]


def _below(matrix: Matrix, url: str) -> str:
    site = matrix.upstreams[UPSTREAM].url or ""
    return url.removeprefix(site) if url.startswith(site) else ""
