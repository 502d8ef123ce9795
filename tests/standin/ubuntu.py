"""Ubuntu's archive, as far as Debian 12 cannot stand in for it: other versions, old compilers.

Everything else that the package lists of the matrix name comes from Debian's archive, which the
base images ask too. What Debian has under no name at all becomes an empty package.
"""

import re
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from imgbuild.matrix.model import Matrix, OperatingSystem
from standin.apt_repository import SigningKey, write_suite
from standin.base_image import COMPONENTS, debian_base
from standin.context import HERE, Context
from standin.deb import Member, Package, renamed, run_dpkg_deb, write_deb
from standin.workbench import run_in_debian, scratch

_SOURCES = (
    "ubuntu.py", "deb.py", "apt_repository.py", "base_image.py", "files/old_gcc.sh",
    "../../images/files/gcc4_std_function.py",
)  # fmt: skip
#: The last revisions that Ubuntu published of these; for others a revision is made up.
_GIT = {"2.7.4": "1:2.7.4-0ubuntu1.10", "2.17.1": "1:2.17.1-1ubuntu0.18"}
_GCC = {"4.8": ("4.8.5", "4.8.5-4ubuntu8")}
#: Where the archive has later revisions too; here all have the same.
_POCKETS = ("", "-updates", "-security")
_HEADERS = "usr/lib/gcc/stand-in-{version}"
#: Prints the packages of its arguments that Debian has, under this name or as another's.
_KNOWN = """
for name in %s; do
    if apt-cache show --no-all-versions "$name" 2>/dev/null | grep -q '^Package:' ||
        [ -n "$(apt-cache showpkg "$name" 2>/dev/null | sed '1,/^Reverse Provides/d')" ]
    then echo "$name"; fi
done
major=$(apt-cache show --no-all-versions g++ | sed -n 's/^Version: [0-9]*:\\([0-9]*\\).*/\\1/p')
apt-get -q download git git-man "libstdc++-$major-dev" >&2
"""


class FromDebian(NamedTuple):
    """What Debian's archive gave: which of our names it knows, and packages in files."""

    known: frozenset[str]
    git: Path
    git_man: Path  #: git demands exactly this version of it
    libstdcxx: Path


def ubuntu_archive(context: Context, key: SigningKey) -> Path:
    """Return the folder that stands for archive.ubuntu.com/ubuntu."""
    systems = {
        system.suite: (_git_version(system), sorted(_names(system)), list(system.compilers))
        for system in _systems(context.matrix)
    }
    made_from = [systems, key.fingerprint, debian_base(context).digest]

    def make(folder: Path) -> None:
        names = sorted({name for _, names, _ in systems.values() for name in names})
        with scratch() as work:
            debian = _ask_debian(context, names, work)
            for system in _systems(context.matrix):
                _write_suites(folder, system, debian, key)

    return context.stored("ubuntu", made_from, _SOURCES, make)


def _write_suites(
    folder: Path, system: OperatingSystem, debian: FromDebian, key: SigningKey
) -> None:
    pool = folder / "pool" / system.suite
    pool.mkdir(parents=True)
    version = _git_version(system)
    name = f"git_{version.partition(':')[2]}_amd64.deb"
    about = "stand-in for tests: Debian's git under Ubuntu's version"
    renamed(debian.git, {"Version": version, "Description": about}, pool / name)
    shutil.copyfile(debian.git_man, pool / "git-man_all.deb")
    for package in _packages(system, debian):
        write_deb(package, pool / package.file_name)
    for pocket in _POCKETS:
        write_suite(folder, system.suite + pocket, COMPONENTS, pool.glob("*.deb"), key)


def _packages(system: OperatingSystem, debian: FromDebian) -> Iterator[Package]:
    own = {f"{tool}-{version}" for tool in ("gcc", "g++") for version in system.compilers}
    for version in system.compilers:
        yield from _compilers(version, debian)
    for name in sorted(_names(system) - own - debian.known):
        yield Package(name, f"0~standin+{system.suite}", "an empty package: Debian has no such one")


#: What headers of g++ 4.8 include by way of others, and today's do not: old sources rely on it.
_IMPLICIT = """#ifdef __cplusplus
#include <array>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#endif
"""


def _compilers(version: str, debian: FromDebian) -> Iterator[Package]:
    full, revision = _GCC.get(version, (f"{version}.0", f"{version}.0-0ubuntu0"))
    headers = _HEADERS.format(version=version)
    about = f"Debian's g++ with the std::function of {version}"
    header = {
        f"{headers}/bits/std_function.h": Member(_old_header(debian.libstdcxx).encode()),
        f"{headers}/implicit.h": Member(_IMPLICIT.encode()),
    }
    for tool, needs in (("gcc", "gcc"), ("g++", f"g++, gcc-{version}")):
        script = _wrapper(tool, version, full)
        files = {f"usr/bin/{tool}-{version}": Member(script.encode(), 0o755)}
        files |= header if tool == "gcc" else {}
        yield Package(f"{tool}-{version}", revision, about, {"Depends": needs}, files)


def _wrapper(tool: str, version: str, full: str) -> str:
    text = (HERE / "files" / "old_gcc.sh").read_text(encoding="utf-8")
    major, minor, patch = full.split(".")
    values = {
        "name": f"{tool}-{version}", "real": tool, "version": full, "major": major, "minor": minor,
        "patch": patch, "headers": _HEADERS.format(version=version),
    }  # fmt: skip
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], text)


def _old_header(package: Path) -> str:
    """Return Debian's bits/std_function.h with the calling convention of g++ 4."""
    with scratch() as tree:
        run_dpkg_deb("--extract", package, tree)
        text = next(tree.rglob("bits/std_function.h")).read_text(encoding="utf-8")
    script = HERE.parents[1] / "images" / "files" / "gcc4_std_function.py"
    return str(runpy.run_path(str(script))["by_value"](text))


def _ask_debian(context: Context, names: list[str], work: Path) -> FromDebian:
    known = run_in_debian(context, _KNOWN % " ".join(names), work).split()
    patterns = ("git_*.deb", "git-man_*.deb", "libstdc++-*-dev_*.deb")
    return FromDebian(frozenset(known), *(next(work.glob(pattern)) for pattern in patterns))


def git_version(archive: Path) -> str:
    """Return the version of the git that is truly in the archive: that of its manual pages."""
    manual = next(archive.rglob("git-man_all.deb"))
    return re.sub(r"^\d+:|-[^-]*$", "", run_dpkg_deb("--field", manual, "Version").strip())


def _names(system: OperatingSystem) -> set[str]:
    return {*system.packages.runtime, *system.packages.compiler, *system.packages.cpython}


def _git_version(system: OperatingSystem) -> str:
    pin = system.pins.git
    version = pin.version if pin else "0"
    return _GIT.get(version, f"1:{version}-0ubuntu0standin")


def _systems(matrix: Matrix) -> list[OperatingSystem]:
    systems = matrix.operating_systems.values()
    return [system for system in systems if system.distribution == "ubuntu"]
