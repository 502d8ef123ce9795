"""Intel's download site: the installer of Intel MPI, with a newer Intel MPI in it."""

import re
from pathlib import Path

from imgbuild.matrix.model import Matrix
from standin.context import HERE, Context
from standin.deb import Member, tar_gz
from standin.intel_layout import layout
from standin.workbench import files_below, wheels

UPSTREAM = "intel"
_REQUIREMENTS = "requirements-intel.txt"
_SOURCES = (
    "intel.py", "intel_layout.py", "deb.py", "files/intel_install.sh", "files/intel_silent.cfg",
    "files/mpivars.sh", _REQUIREMENTS,
)  # fmt: skip


def intel_site(context: Context) -> Path:
    """Return the folder that stands for Intel's download site."""
    archives = _archives(context.matrix)

    def make(folder: Path) -> None:
        content = _wheel_files(context)
        for path, (version, licence) in archives.items():
            target = folder / path
            target.parent.mkdir(parents=True)
            target.write_bytes(_archive(target.stem, version, licence, content))

    return context.stored(UPSTREAM, archives, _SOURCES, make)


def intel_version() -> str:
    """Return the version of the Intel MPI that is truly in the archive, as it gives it itself."""
    text = (HERE / _REQUIREMENTS).read_text(encoding="utf-8")
    found = re.search(r"impi-rt==(\d+\.\d+)", text)
    return found[1] if found else "0"


def _archive(name: str, version: str, licence: str, content: dict[str, tuple[bytes, int]]) -> bytes:
    values = {"version": version, "licence": licence}
    install = _file("intel_install.sh", values)
    files = {
        f"{name}/install.sh": Member(install.encode(), 0o755),
        f"{name}/silent.cfg": Member(_file("intel_silent.cfg", values).encode()),
        f"{name}/payload.tar.gz": Member(tar_gz(layout(version, content))),
    }
    return tar_gz(files, start="")


def _file(name: str, values: dict[str, str]) -> str:
    text = (HERE / "files" / name).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def _wheel_files(context: Context) -> dict[str, tuple[bytes, int]]:
    """Return the files of Intel's wheels below their data folder: content and mode by path."""
    found: dict[str, tuple[bytes, int]] = {}
    for wheel in wheels(context, _REQUIREMENTS):
        folder = "-".join(wheel.name.split("-")[:2]) + ".data/data/"
        found |= {path: (content, mode) for path, content, mode in files_below(wheel, folder)}
    return {path: _executable(path, *entry) for path, entry in found.items()}


def _executable(path: str, content: bytes, mode: int) -> tuple[bytes, int]:
    return content, 0o755 if path.startswith("bin/") else mode & 0o755


def _archives(matrix: Matrix) -> dict[str, tuple[str, str]]:
    """Return version and licence of each Intel MPI, by its archive's path below the site's URL."""
    site = matrix.upstreams[UPSTREAM].url or ""
    return {
        matrix.sources[mpi.source].url.removeprefix(site): (mpi.version, mpi.licence)
        for mpi in matrix.mpi.values()
        if mpi.origin == "installer" and matrix.sources[mpi.source].url.startswith(site)
    }
