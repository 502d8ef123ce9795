"""Open MPI's download site: the source of the Open MPI that Debian has, under the pinned name."""

import gzip
import io
import lzma
import tarfile
from pathlib import Path

from imgbuild.matrix.model import Matrix
from standin.base_image import debian_base
from standin.context import Context
from standin.deb import TIME
from standin.workbench import run_in_debian, scratch

UPSTREAM = "open-mpi"
_SOURCES = ("open_mpi.py", "workbench.py")
_VERSION_FILE = "debian-version"


def open_mpi_site(context: Context) -> Path:
    """Return the folder that stands for download.open-mpi.org."""
    archives = _archives(context.matrix)
    made_from = [archives, debian_base(context).digest]

    def make(folder: Path) -> None:
        with scratch() as work:
            run_in_debian(context, "apt-get -q source --download-only openmpi", work)
            source = next(work.glob("openmpi_*.orig.tar.*"))
            version = source.name.removeprefix("openmpi_").partition(".orig")[0]
            content = lzma.decompress(source.read_bytes())
        (folder / _VERSION_FILE).write_text(version + "\n", encoding="ascii")
        for path in archives:
            target = folder / path
            target.parent.mkdir(parents=True)
            _repack(content, target)

    return context.stored(UPSTREAM, made_from, _SOURCES, make)


def open_mpi_version(site: Path) -> str:
    return (site / _VERSION_FILE).read_text(encoding="ascii").strip()


def _repack(content: bytes, target: Path) -> None:
    """Write the source archive ``content`` so that it unpacks to a folder of ``target``'s name."""
    folder = target.name.removesuffix(".tar.gz")
    with (
        tarfile.open(fileobj=io.BytesIO(content)) as source,
        target.open("wb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as out,
    ):
        for entry in source:
            entry.name = "/".join([folder, *entry.name.split("/")[1:]])
            entry.mtime = min(int(entry.mtime), TIME)
            out.addfile(entry, source.extractfile(entry) if entry.isfile() else None)


def _archives(matrix: Matrix) -> list[str]:
    """Return the paths of the sources of the matrix below the site's URL."""
    site = matrix.upstreams[UPSTREAM].url or ""
    urls = [matrix.sources[mpi.source].url for mpi in matrix.mpi.values() if mpi.origin == "source"]
    return sorted(url.removeprefix(site) for url in urls if url.startswith(site))
