"""Resolve locks with uv, for an old interpreter on manylinux, with hashes."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from imgbuild.dockerfile.lockfile import HEADER, parse_lock
from imgbuild.dockerfile.requirements import LockRequest
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.files import work_folder, write_text
from imgbuild.process import TIMED_OUT, Finished, run
from imgbuild.settings import Sites

#: The upstream of the matrix that stands for the Python package index.
INDEX = "python-index"
#: Wheels for glibc 2.17 and older: they run on every operating system of the matrix.
PLATFORM = "x86_64-manylinux2014"
#: uv's own retries included; a resolution takes about 3 s.
TIMEOUT_SECONDS = 300
_UNREACHABLE = ("error sending request", "dns error", "failed to fetch", "connection refused")


def resolve(
    request: LockRequest,
    folder: Path,
    *,
    upgrade: bool,
    environment: Mapping[str, str] = os.environ,
) -> bool:
    """Write the lock of ``request`` into ``folder``; return whether the file changed.

    Versions of an existing lock are kept where they still satisfy, unless ``upgrade``. uv runs in
    ``environment``, which may name another index.

    Raises:
        CheckFailedError: no set of packages satisfies the request; uv's reason is given.
        MachineError: the package index cannot be reached.

    """
    path = folder / request.file_name
    previous = path.read_text(encoding="utf-8") if path.exists() else ""
    body = _run_uv(request, "" if upgrade else previous, environment)
    text = f"{HEADER}\n# {request.title}\n# request: sha256:{request.digest}\n{body}"
    parse_lock(text, request.file_name)
    if text == previous:
        return False
    write_text(path, text)
    return True


def _run_uv(request: LockRequest, previous: str, environment: Mapping[str, str]) -> str:
    with work_folder("lock") as folder:
        (folder / "requirements.in").write_text("\n".join(request.requirements) + "\n")
        (folder / "constraints.txt").write_text("\n".join(request.constraints) + "\n")
        output = folder / "lock.txt"
        output.write_text(previous)
        options = ["--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
        options += ["--no-emit-index-url", "--python-version", request.python]
        options += ["--python-platform", PLATFORM, "--constraint", "constraints.txt"]
        options += ["--output-file", "lock.txt", "requirements.in"]
        result = call_uv(options, folder, environment)
        if not result.ok:
            raise _explain(request, result.errors)
        return output.read_text()


def call_uv(options: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Finished:
    """Run ``uv pip compile`` with these options in ``folder``.

    Raises:
        MachineError: it takes longer than `TIMEOUT_SECONDS`.

    """
    from uv import find_uv_bin  # noqa: PLC0415 - only where it is called

    # A virtual environment that happens to be active must not decide anything.
    env = {name: value for name, value in environment.items() if name != "VIRTUAL_ENV"}
    command = [find_uv_bin(), "pip", "compile", *options]
    result = run(command, timeout=TIMEOUT_SECONDS, env=env, cwd=folder)
    if result.code == TIMED_OUT:
        raise MachineError(
            f"uv gave no answer within {TIMEOUT_SECONDS} s; is the Python package index reachable? "
            "See `imgbuild doctor`."
        )
    return result


def _explain(request: LockRequest, stderr: str) -> Exception:
    reason = " ".join(stderr.split())
    if any(sign in reason.lower() for sign in _UNREACHABLE):
        return MachineError(
            f"The Python package index cannot be reached for {request.file_name}: {reason}"
        )
    return CheckFailedError(
        f"No set of packages satisfies {request.file_name} ({request.title}): {reason} "
        "If the release exists, change `requirements` or `constraints` in matrix.yaml."
    )


def index_environment(sites: Sites) -> Mapping[str, str]:
    """Return the environment in which uv uses the mirror, logins and CAs of this machine.

    Without a mirror uv's own configuration files and variables name the index.
    """
    mirror = sites.settings.mirrors.get(INDEX)
    found = {
        "UV_DEFAULT_INDEX": mirror.url if mirror else None,
        "NETRC": sites.settings.netrc,
        "SSL_CERT_FILE": sites.settings.ca_bundle,
    }
    return {**os.environ, **{name: value for name, value in found.items() if value}}
