"""A CPython prefix of this machine: where such prefixes are, and whether one can be used."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from imgbuild.errors import InputError

#: What TensorFlow, Horovod, TensorBoard and pip import. CPython builds without any of them when a
#: header is missing, and says so in a line that nobody reads.
REQUIRED_MODULES = ("ssl", "ctypes", "bz2", "lzma", "sqlite3", "readline", "zlib")
_SYSTEM_LIBRARIES = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")

#: Runs in the interpreter that is looked at, from Python 3.6 on.
_PROBE = r"""
import importlib, json, platform, sys, sysconfig
missing = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        missing[name] = str(error)
built = {}
sysconfig._init_posix(built)
with open("/proc/self/maps") as maps:
    files = {line.split(None, 5)[5].strip() for line in maps if len(line.split(None, 5)) == 6}
print(json.dumps({
    "version": platform.python_version(),
    "machine": platform.machine(),
    "prefix": sys.prefix,
    "recorded": str(built.get("prefix", sys.prefix)),
    "build_folder": str(built.get("abs_builddir", "")),
    "missing": missing,
    "libraries": sorted(f for f in files if f.startswith("/") and ".so" in f.rpartition("/")[2]),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """What an interpreter says about itself."""

    version: str
    machine: str
    prefix: str
    recorded: str
    """The prefix it was configured with, as ``sysconfig`` has it."""
    build_folder: str
    """Where it was compiled; empty if not recorded."""
    missing: dict[str, str]
    """Required modules that cannot be imported, each with the interpreter's reason."""
    libraries: tuple[str, ...]
    """The shared libraries it has loaded, extension modules among them."""


def interpreter_path(prefix: Path, version: str) -> Path:
    """Return where the interpreter of ``version`` (such as 3.6.15) is in ``prefix``."""
    return prefix / "bin" / f"python{version.rpartition('.')[0]}"


def probe(python: Path) -> Interpreter:
    """Return what ``python`` says about itself; nothing of this user's settings reaches it.

    Raises:
        InputError: it is not there, does not run, or is no CPython 3.6 or later.

    """
    command = [str(python), "-I", "-B", "-S", "-c", _PROBE, *REQUIRED_MODULES]
    environment = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
    try:
        result = subprocess.run(
            command, env=environment, capture_output=True, check=True, timeout=60, text=True
        )
        found = json.loads(result.stdout)
        return Interpreter(**{**found, "libraries": tuple(found["libraries"])})
    except subprocess.CalledProcessError as error:
        said = str(error.stderr).strip().rpartition("\n")[2]
        raise _unusable(python, f"fails: {said or f'exit status {error.returncode}'}") from error
    except FileNotFoundError as error:
        raise _unusable(python, "is not there") from error
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError, KeyError) as error:
        raise _unusable(python, f"does not run as CPython: {error}") from error


def verify_prefix(prefix: Path, version: str) -> Interpreter:
    """Return the interpreter of ``prefix``, which is of exactly ``version`` and complete.

    Raises:
        InputError: all that keeps it from being used, and what to do.

    """
    python = interpreter_path(prefix, version)
    found = probe(python)
    faults = [
        *([] if found.version == version else [f"it is {found.version}, not {version}"]),
        *([] if found.machine == "x86_64" else [f"it is for {found.machine}, not x86_64"]),
        *(f"it cannot import {name} ({why})" for name, why in found.missing.items()),
        *(f"it loads {library}, which no image has" for library in _foreign(found)),
    ]
    if faults:
        raise _unusable(python, "cannot be used: " + "; ".join(faults))
    return found


def find_prefixes(version: str) -> list[Path]:
    """Return the prefixes of this machine whose interpreter reports exactly ``version``.

    Looked at: pyenv's (``PYENV_ROOT``, or ``~/.pyenv``), /opt/python/VERSION and /usr/local.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [pyenv / "versions" / version, Path("/opt/python") / version, Path("/usr/local")]
    return [path for path in candidates if _reports(path, version)]


def _reports(prefix: Path, version: str) -> bool:
    python = interpreter_path(prefix, version)
    try:
        return python.exists() and probe(python).version == version
    except InputError:
        return False


def _foreign(found: Interpreter) -> list[str]:
    """Return the loaded libraries that neither the system nor the standard library brings."""
    own = (f"{found.prefix}/lib/python", f"{found.prefix}/lib/libpython")
    return [path for path in found.libraries if not path.startswith((*_SYSTEM_LIBRARIES, *own))]


def _unusable(python: Path, why: str) -> InputError:
    return InputError(
        f"The interpreter {python} {why}. Build it again with the missing headers in place "
        "(`sudo apt-get install -y libssl-dev libffi-dev libbz2-dev liblzma-dev libsqlite3-dev "
        "libreadline-dev zlib1g-dev`, then `pyenv install --force VERSION` with "
        "PYTHON_CONFIGURE_OPTS=--enable-shared), name another prefix in imgbuild.local.yaml "
        "(cpython: from: prefix), or remove the entry to have it compiled from source."
    )
