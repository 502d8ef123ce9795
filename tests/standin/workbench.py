"""Where stand-ins are made: a container of the Debian base, an empty folder, pinned wheels."""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imgbuild.engine.client import Engine
from imgbuild.inputs.oci_layout import write_archive
from standin.base_image import debian_base
from standin.context import HERE, Context

#: `apt-get source` and `apt-get download` work as in a Debian that asks for sources too.
_PREPARE = (
    "set -eu; sed -n 's/^deb /deb-src /p' /etc/apt/sources.list"
    " > /etc/apt/sources.list.d/sources.list; apt-get -q update >/dev/null; "
)


def run_in_debian(context: Context, script: str, folder: Path) -> str:
    """Run a shell script in Debian 12, with apt's lists there and ``folder`` as /out.

    Returns its standard output.
    """
    image = _loaded(context)
    mount = ["--volume", f"{folder}:/out", "--workdir", "/out"]
    command = ["docker", "run", "--rm", *mount, image, "sh", "-c", _PREPARE + script]
    done = subprocess.run(
        command, env=environment(context), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"a script in Debian failed: {done.stderr[-3000:]}")
    return done.stdout


def environment(context: Context) -> dict[str, str]:
    """Return the environment in which the docker client talks to the settings' engine."""
    return {**os.environ, **({"DOCKER_HOST": context.host} if context.host else {})}


def _loaded(context: Context) -> str:
    base = debian_base(context)
    engine = Engine(context.host)
    if engine.inspect(base.reference) is None:
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "base.tar"
            write_archive(base.path, archive)
            with archive.open("rb") as stream:
                engine.load(stream)
    engine.close()
    return base.reference


@contextmanager
def scratch() -> Iterator[Path]:
    """Give an empty folder that goes with the block."""
    with tempfile.TemporaryDirectory(prefix="standin-") as folder:
        yield Path(folder)


def wheels(context: Context, requirements: str) -> list[Path]:
    """Return the wheels that a requirements file of this folder pins, downloaded once.

    Raises:
        RuntimeError: pip could not get them.

    """

    def download(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-cache-dir", "--only-binary", ":all:", "--require-hashes"]
        command += ["--dest", str(folder), "--requirement", str(HERE / requirements)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{requirements}: {done.stderr[-2000:]}")

    name = f"wheels-{requirements.removesuffix('.txt').removeprefix('requirements-')}"
    return sorted(context.stored(name, [], (requirements,), download).glob("*.whl"))


def files_below(wheel: Path, folder: str) -> Iterator[tuple[str, bytes, int]]:
    """Yield path (relative to ``folder``), content and mode of the files below it in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith(folder) and not entry.is_dir():
                mode = entry.external_attr >> 16 & 0o777
                yield entry.filename.removeprefix(folder), archive.read(entry), mode or 0o644
