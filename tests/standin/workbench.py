"""Where stand-ins are made: a container of the Debian base, an empty folder, pinned wheels."""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from imgbuild.engine.client import Engine
from imgbuild.inputs.base import Base
from imgbuild.inputs.oci_layout import write_archive
from standin.base_image import debian_base
from standin.context import HERE, Context

#: `apt-get source` and `apt-get download` work as in a Debian that asks for sources too.
_PREPARE = (
    "set -eu; sed -n 's/^deb /deb-src /p' /etc/apt/sources.list"
    " > /etc/apt/sources.list.d/sources.list; apt-get -q update >/dev/null; "
)


def run_in_debian(context: Context, script: str, folder: Path) -> str:
    """Return what a shell script prints in Debian 12, with apt's lists and ``folder`` as /out."""
    image = load_debian(context).reference
    mount = ["--volume", f"{folder}:/out", "--workdir", "/out"]
    command = ["docker", "run", "--rm", *mount, image, "sh", "-c", _PREPARE + script]
    done = subprocess.run(
        command, env=environment(context), stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def environment(context: Context) -> dict[str, str]:
    """Return the environment in which the docker client talks to the settings' engine."""
    return {**os.environ, **({"DOCKER_HOST": context.host} if context.host else {})}


def load_debian(context: Context) -> Base:
    """Return Debian's base image, which the engine has then."""
    base = debian_base(context)
    with closing(Engine(context.host)) as engine, scratch() as folder:
        if engine.inspect(base.reference) is None:
            assert base.layout
            write_archive(base.layout, folder / "base.tar")
            with (folder / "base.tar").open("rb") as stream:
                engine.load(stream)
    return base


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="standin-") as folder:
        yield Path(folder)


def wheels(context: Context, requirements: str) -> list[Path]:
    """Return the wheels that a requirements file of this folder pins, downloaded once."""

    def download(folder: Path) -> None:
        pip_download(HERE / requirements, folder)

    name = f"wheels-{requirements.removesuffix('.txt').removeprefix('requirements-')}"
    return sorted(context.stored(name, [], (requirements,), download).glob("*.whl"))


def pip_download(requirements: Path, folder: Path, *options: str) -> None:
    """Download the wheels of a file of requirements with hashes into a folder."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary", ":all:", "--require-hashes", *options]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    subprocess.run(command, check=True)


def files_below(wheel: Path, folder: str) -> Iterator[tuple[str, bytes, int]]:
    """Yield path (relative to ``folder``), content and mode of the files below it in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith(folder) and not entry.is_dir():
                mode = entry.external_attr >> 16 & 0o777
                yield entry.filename.removeprefix(folder), archive.read(entry), mode or 0o644
