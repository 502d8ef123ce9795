"""Verify and digest a CPython of this machine; images/prefix/Dockerfile makes it relocatable."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from imgbuild.core.errors import InputError
from imgbuild.core.files import file_sha256, json_sha256, parse_json, sha256, write_text
from imgbuild.core.process import NOT_FOUND, run
from imgbuild.core.user_folders import home
from imgbuild.matrix.evidence import MACHINES

#: The modules that TensorFlow, Horovod, TensorBoard and pip import. If a header is missing, CPython
#: is built without its module, and prints only one line about it.
REQUIRED_MODULES = ("ssl", "ctypes", "bz2", "lzma", "sqlite3", "readline", "zlib")
_SYSTEM_LIBRARIES = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")
#: Folders that images/prefix/Dockerfile removes, so their files do not affect the image.
_LEFT_OUT = {"__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "site-packages"}
_SECONDS = 60.0

#: Runs in the interpreter that is probed, Python 3.6 or later.
_PROBE = r"""
import importlib, json, platform, sys
missing = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        missing[name] = str(error)
with open("/proc/self/maps") as maps:
    files = {line.split(None, 5)[5].strip() for line in maps if len(line.split(None, 5)) == 6}
print(json.dumps({
    "version": platform.python_version(),
    "machine": platform.machine(),
    "prefix": sys.prefix,
    "missing": missing,
    "libraries": sorted(f for f in files if f.startswith("/") and ".so" in f.rpartition("/")[2]),
}))
"""


@dataclass(frozen=True)
class ProbedInterpreter:
    """The report of an interpreter.

    ``missing`` has the modules that it cannot import, with the errors. ``libraries`` has the
    libraries that it has loaded, including extension modules.
    """

    version: str
    machine: str
    prefix: str
    missing: dict[str, str]
    libraries: list[str]


def digest_prefix(prefix: Path, version: str, dockerfile: Path, cache: Path) -> str:
    """Return one digest (``sha256:…``) of ``dockerfile`` and the files that images copy.

    The files in ``prefix`` are read again only if the mode, size or time of one has changed since
    ``cache`` got the digest. Raise the errors of `verify_prefix`.
    """
    minor = version.rpartition(".")[0]
    files = sorted(_files(prefix, minor))
    states = [(name, os.lstat(f"{prefix}/{name}")) for name in files]
    touched = json_sha256([[n, s.st_mode, s.st_size, s.st_mtime_ns] for n, s in states])
    place = sha256(str(prefix).encode())
    stamp = cache / "cpython" / f"{version}-{place[:16]}.json"
    content = None
    with suppress(OSError, ValueError, KeyError, TypeError):
        stored = parse_json(stamp.read_bytes())
        if stored["touched"] == touched:
            content = stored["content"]
    if content is None:
        verify_prefix(prefix, version)
        content = json_sha256([_describe_file(prefix / name, name) for name in files])
        write_text(stamp, json.dumps({"touched": touched, "content": content}))
    digest = json_sha256([minor, content, file_sha256(dockerfile)])
    return f"sha256:{digest}"


def verify_prefix(prefix: Path, version: str) -> None:
    """Raise InputError with all reasons why ``prefix`` cannot be used as CPython ``version``."""
    python = _python(prefix, version)
    facts = probe(python)
    own = (f"{facts.prefix}/lib/python", f"{facts.prefix}/lib/libpython", *_SYSTEM_LIBRARIES)
    foreign = [library for library in facts.libraries if not library.startswith(own)]
    faults = []
    if facts.version != version:
        faults.append(f"it is {facts.version}, not {version}")
    if facts.machine not in MACHINES.values():
        faults.append(f"it is for {facts.machine}, not for {' or '.join(MACHINES.values())}")
    faults += [f"it cannot import {name} ({why})" for name, why in facts.missing.items()]
    faults += [f"it loads {library}, which no image has" for library in foreign]
    if faults:
        raise _unusable(python, "cannot be used: " + "; ".join(faults))


def find_prefixes(version: str) -> list[Path]:
    """Return the prefixes on this machine whose interpreter reports exactly ``version``.

    Search pyenv (``PYENV_ROOT``, or ``~/.pyenv``), /opt/python/VERSION and /usr/local.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT") or home() / ".pyenv")
    candidates = [pyenv / "versions" / version, Path("/opt/python") / version, Path("/usr/local")]
    prefixes = []
    for prefix in candidates:
        with suppress(InputError):
            facts = probe(_python(prefix, version))
            if facts.version == version:
                prefixes.append(prefix)
    return prefixes


def _python(prefix: Path, version: str) -> Path:
    return prefix / "bin" / f"python{version.rpartition('.')[0]}"


def probe(python: Path) -> ProbedInterpreter:
    """Run ``python`` without the user's environment, and return its report.

    InputError: it does not run, or it is not CPython 3.6 or later.
    """
    command = [str(python), "-I", "-B", "-S", "-c", _PROBE, *REQUIRED_MODULES]
    result = run(command, env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"}, timeout=_SECONDS)
    # The code is the same if the interpreter exists but its loader does not find libpython.
    if result.code == NOT_FOUND and not os.access(python, os.X_OK):
        raise _unusable(python, "does not exist, or you may not run it")
    if not result.ok:
        raise _unusable(python, f"fails: {result.last(1)}")
    try:
        return ProbedInterpreter(**json.loads(result.output))
    except (ValueError, TypeError) as error:
        raise _unusable(python, f"does not run as CPython: {error}") from error


def _files(prefix: Path, minor: str) -> Iterator[str]:
    """Yield the files that images copy, relative to ``prefix``."""
    tops = [f"bin/python{minor}*", f"include/python{minor}*", f"lib/libpython{minor}*"]
    tops += ["lib/libpython3.so", "lib/pkgconfig/python*", f"lib/python{minor}"]
    for pattern in tops:
        for top in prefix.glob(pattern):
            if top.is_symlink() or not top.is_dir():
                yield str(top.relative_to(prefix))
                continue
            for folder, inner, names in os.walk(top):
                inner[:] = [name for name in inner if name not in _LEFT_OUT]
                where = os.path.relpath(folder, prefix)
                yield from (f"{where}/{name}" for name in names if not name.endswith((".a", ".o")))


def _describe_file(path: Path, name: str) -> list[object]:
    if path.is_symlink():
        return [name, "link", str(path.readlink())]
    return [name, os.access(path, os.X_OK), file_sha256(path)]


def _unusable(python: Path, why: str) -> InputError:
    return InputError(
        f"The interpreter {python} {why}. Install the missing headers and build it again "
        "(`sudo apt-get install -y libssl-dev libffi-dev libbz2-dev liblzma-dev libsqlite3-dev "
        "libreadline-dev zlib1g-dev`, then `pyenv install --force VERSION` with "
        "PYTHON_CONFIGURE_OPTS=--enable-shared), name another prefix in imgbuild.local.yaml "
        "(cpython: from: prefix), or remove the entry to compile CPython from source."
    )
