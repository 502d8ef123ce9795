"""Run in a container, by its own Python (3.6 and later): make a package's metadata.

    prepare   as root: unpack the build tools, which are wheels, and make a folder for the package
    make      as a plain user: unpack the package and call its build backend
    collect   as root: copy two files of it, if they are files of a limited size

The source distribution, the settings and this program are in one folder, the wheels in another.
Source: PEP 517, "Build backend interface".
"""

import importlib
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
WHEELS = Path("/run/tools")
ROOT = Path("/imgbuild-metadata")
TOOLS, WORK, RESULT = ROOT / "tools", ROOT / "work", ROOT / "result"
#: The files that are copied out of the plain user's folder: metadata, or why there is none.
FILES = ("METADATA", "requires.json", "error.txt")
#: Bytes of one of these files, and of any file that the package's code writes.
LARGEST_RESULT, LARGEST_FILE = 1 << 20, 1 << 30
PROCESSES = 512


def prepare() -> None:
    for folder in (TOOLS, WORK, RESULT):
        folder.mkdir(parents=True)
    WORK.chmod(0o777)
    for wheel in sorted(WHEELS.glob("*.whl")):
        with zipfile.ZipFile(str(wheel)) as archive:
            archive.extractall(str(TOOLS))  # noqa: S202 - zipfile stays below it
    # Extracted files may be readable by root alone.
    for path in TOOLS.rglob("*"):
        path.chmod(0o755)


def make() -> None:
    """Call the backend in a process of its own, which ends with this one, the container's first."""
    settings = json.loads((HERE / "settings.json").read_text("utf-8"))
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(WORK),
        "TMPDIR": str(WORK),
    }
    environment.update(PYTHONPATH=str(TOOLS), LANG="C.UTF-8", PYTHONDONTWRITEBYTECODE="1")
    # Without site-packages: a build sees its tools alone.
    command = [sys.executable, "-s", "-S", str(Path(__file__).resolve()), "call"]
    # By its descriptor: the package's code may replace any file of the folder.
    with tempfile.TemporaryFile(dir=str(WORK)) as output:
        try:
            code = subprocess.call(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=limit,
                timeout=settings["seconds"],
            )
            reason = "" if code == 0 else "its build backend failed"
        except subprocess.TimeoutExpired:
            reason = f"its build backend took more than {settings['seconds']} s"
        output.seek(max(0, output.seek(0, os.SEEK_END) - 10000))
        lines = output.read(10000).decode("utf-8", "replace").splitlines()
    if reason:
        said = " | ".join([line.strip() for line in lines if line.strip()][-3:])
        temporary = WORK / "error.new"
        with suppress(OSError):
            temporary.unlink()
        with temporary.open("x", encoding="utf-8") as file:
            file.write(f"{reason}: {said}")
        temporary.replace(WORK / "error.txt")


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a source distribution, and return its one folder."""
    if zipfile.is_zipfile(str(archive)):
        with zipfile.ZipFile(str(archive)) as file:
            file.extractall(str(folder))  # noqa: S202 - as a plain user
    else:
        with tarfile.open(str(archive)) as tar:
            tar.extractall(str(folder))  # noqa: S202 - as a plain user
    (source,) = [path for path in folder.iterdir() if path.is_dir()]
    return source


def call() -> None:
    """Write what the backend says: what else it requires, then the metadata, if it can."""
    settings = json.loads((HERE / "settings.json").read_text("utf-8"))
    source, made = unpack(HERE / "source", WORK / "source"), WORK / "made"
    made.mkdir()
    os.chdir(str(source))
    sys.path[:0] = [str(source / name) for name in settings["path"]]
    name, _, member = settings["backend"].partition(":")
    backend = importlib.import_module(name)
    for part in filter(None, member.split(".")):
        backend = getattr(backend, part)
    ask = getattr(backend, "get_requires_for_build_wheel", None)
    requires = list(ask()) if ask else []
    (WORK / "requires.json").write_text(json.dumps(requires), "utf-8")
    if hasattr(backend, "prepare_metadata_for_build_wheel"):
        folder = made / backend.prepare_metadata_for_build_wheel(str(made))
        shutil.copyfile(str(folder / "METADATA"), str(WORK / "METADATA"))
        return
    wheel = made / backend.build_wheel(str(made))
    with zipfile.ZipFile(str(wheel)) as archive:
        (info,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        (WORK / "METADATA").write_bytes(archive.read(info))


def collect() -> None:
    """Copy as root only what is a file: the package's code may have left links, pipes, folders."""
    for name in FILES:
        try:
            file = os.open(str(WORK / name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            status = os.fstat(file)
            if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_RESULT:
                (RESULT / name).write_bytes(os.read(file, LARGEST_RESULT))
        finally:
            os.close(file)


if __name__ == "__main__":
    {"prepare": prepare, "make": make, "call": call, "collect": collect}[sys.argv[1]]()
