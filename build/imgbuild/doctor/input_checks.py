"""Check that the inputs of builds can be reached: base images, CPython, packages, CAs."""

import os
import ssl
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from imgbuild.doctor.show import Finding, Status, install_command
from imgbuild.errors import ImgbuildError
from imgbuild.http import HttpClient, RetryPolicy, TransientError
from imgbuild.inputs.base import KEYRINGS, missing_packages
from imgbuild.inputs.local_prefix import find_prefixes, verify_prefix
from imgbuild.matrix.model import OperatingSystem
from imgbuild.process import run
from imgbuild.settings import (
    CA_VARIABLES,
    SYSTEM_BUNDLES,
    Interpreter,
    PrefixInterpreter,
    Sites,
    SourceInterpreter,
)

SOURCE_SECONDS = 5.0
ARCHIVE_SECONDS = 15.0
INDEX_SECONDS = 12.0
#: The smallest component of each archive: its index is a few kilobytes where main has megabytes.
_SMALL_COMPONENT = {"debian": "contrib", "ubuntu": "multiverse"}
#: Small, and part of every image.
_REQUIREMENT = "wheel==0.37.1"
#: Debian's own copies of the public CAs; what an administrator adds is elsewhere.
_PUBLIC_CAS = Path("/usr/share/ca-certificates")
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


# --- base images ----------------------------------------------------------------------------------


def check_bootstrap(name: str, system: OperatingSystem) -> Finding:
    """Return whether mmdebstrap can make the base image of ``system`` here.

    mmdebstrap, with the sources it would use, verifies the archive and fetches one index.
    """
    what, archive = f"base {name}", f"{system.distribution.capitalize()}'s archive"
    packages = missing_packages(system.distribution)
    if packages:
        detail = f"made from the distribution's archive, which needs {', '.join(packages)}"
        return Finding(Status.MISSING, what, detail, install_command(*packages))
    with tempfile.TemporaryDirectory(prefix="imgbuild-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # without root, mmdebstrap works under a subordinate id
        environment = {**os.environ, "TMPDIR": folder, "LC_ALL": "C.UTF-8"}
        tried = run(_bootstrap_command(system), timeout=ARCHIVE_SECONDS, env=environment)
    if tried.ok:
        detail = f"bootstrapped from {archive} ({system.suite}), which answers"
        return Finding(Status.FINE, what, detail)
    lines = [line.strip() for line in tried.errors.splitlines()]
    # The errors after apt's first one only say that there was one.
    first = next((line for line in lines if line.startswith("E: ")), tried.last(1))
    fix = (
        "give apt its proxy (/etc/apt/apt.conf.d, Acquire::http::Proxy) or http_proxy, or name a "
        "base image in imgbuild.local.yaml: "
        f"base: {{{name}: {{from: registry, image: NAME@sha256:DIGEST}}}}"
    )
    detail = f"{archive} ({system.suite}) cannot be used: {first.removeprefix('E: ')}"
    return Finding(Status.MISSING, what, detail, fix)


def _bootstrap_command(system: OperatingSystem) -> list[str]:
    return [
        "mmdebstrap",
        "--variant=custom",
        "--format=null",
        "--architectures=amd64",
        f"--components={_SMALL_COMPONENT[system.distribution]}",
        f"--keyring={KEYRINGS[system.distribution][0]}",
        '--aptopt=Acquire::http::Timeout "4"',
        '--aptopt=Acquire::https::Timeout "4"',
        '--aptopt=Acquire::Retries "0"',
        system.suite,
    ]


def check_registry(name: str, image: str, buildx: Path | None, host: str | None) -> Finding:
    """Return whether the registry has the base image ``image``, as the engine's client sees it."""
    what = f"base {name}"
    if buildx is None:
        return Finding(Status.SKIPPED, what, f"{image}; not checked without buildx")
    environment = {**os.environ, **({"DOCKER_HOST": host} if host else {})}
    command = [str(buildx), "imagetools", "inspect", image]
    tried = run(command, timeout=ARCHIVE_SECONDS, env=environment)
    if tried.ok:
        return Finding(Status.FINE, what, f"{image}, from its registry")
    # The engine may hold it already (loaded from an archive), so this alone prevents no build.
    detail = f"{image}: its registry does not answer ({tried.last(1)}); the engine must hold it"
    return Finding(Status.WARNING, what, detail, f"docker pull {image}")


# --- CPython --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InterpreterState:
    """Where one CPython version could come from: its source, or complete prefixes."""

    version: str
    url: str
    problem: str = ""
    """Why the source cannot be downloaded; empty if it can."""
    prefixes: tuple[Path, ...] = ()
    faults: tuple[str, ...] = ()
    """Why other prefixes cannot be used."""

    def choose(self, current: Interpreter | None) -> Interpreter | None:
        """Return where this CPython is taken from, or ``None`` if there is no way.

        The settings' prefix while it is valid, else the source, else another prefix.
        """
        if isinstance(current, PrefixInterpreter) and Path(current.path) in self.prefixes:
            return current
        if not self.problem:
            return SourceInterpreter()
        if self.prefixes:
            return PrefixInterpreter(source="prefix", path=str(self.prefixes[0]))
        return None


def read_interpreter(version: str, url: str, named: str | None, sites: Sites) -> InterpreterState:
    """Return where CPython ``version`` could come from; ``named`` is a prefix of the settings."""
    address = sites.address(url)
    candidates = [*([Path(named)] if named else []), *find_prefixes(version)]
    prefixes, faults = [], []
    for path in dict.fromkeys(candidates):
        try:
            verify_prefix(path, version)
            prefixes.append(path)
        except ImgbuildError as error:
            faults.append(str(error))
    return InterpreterState(
        version, address, _unreachable(address, sites), tuple(prefixes), tuple(faults)
    )


def _unreachable(url: str, sites: Sites) -> str:
    """Ask for the first byte, since some mirrors refuse HEAD; return why it cannot be had."""
    seconds = (SOURCE_SECONDS, SOURCE_SECONDS)
    client = HttpClient(sites.verify, policy=RetryPolicy(attempts=1), seconds=seconds)
    try:
        with client.stream("GET", url, {"Range": "bytes=0-0"}) as response:
            return "" if response.ok else f"HTTP status {response.status_code}"
    except (TransientError, ImgbuildError) as error:
        return str(error)
    finally:
        client.close()


def check_interpreter(
    state: InterpreterState, chosen: Interpreter | None, *, recorded: bool
) -> Finding:
    """Return whether CPython can be had the way that was chosen, and ``recorded`` in settings."""
    what = f"CPython {state.version}"
    unreachable = f"{state.url} does not answer ({state.problem})"
    if chosen is None:
        detail = f"{unreachable}. {' '.join(state.faults) or 'No local prefix has it.'}"
        fix = (
            f"let this machine reach the source, or put CPython {state.version} into a prefix "
            "(built elsewhere, or by pyenv) and name it in imgbuild.local.yaml: "
            f"cpython: {{{state.version}: {{from: prefix, path: /opt/python-{state.version}}}}}"
        )
        return Finding(Status.MISSING, what, detail, fix)
    if not recorded:
        detail = "the prefix of imgbuild.local.yaml cannot be used, but the source answers"
        if isinstance(chosen, PrefixInterpreter):
            detail = f"{unreachable}, but {chosen.path} has it"
        return Finding(Status.MISSING, what, detail, "imgbuild doctor --write")
    if isinstance(chosen, SourceInterpreter):
        return Finding(Status.FINE, what, "compiled from its source, which can be downloaded")
    because = f"; {unreachable}" if state.problem else ""
    return Finding(Status.FINE, what, f"local prefix {chosen.path}{because}")


# --- the network ----------------------------------------------------------------------------------


def check_index(ca_bundle: str | None) -> Finding:
    """Return whether uv, as it is configured here, can resolve one small requirement."""
    from uv import find_uv_bin  # noqa: PLC0415 - only needed here

    limits = {"UV_HTTP_TIMEOUT": "5", "UV_HTTP_RETRIES": "0"}
    ca = {"SSL_CERT_FILE": ca_bundle} if ca_bundle else {}
    options = ("--no-cache", "--no-deps", "--no-header", "--quiet")
    tried = run(
        [find_uv_bin(), "pip", "compile", *options, "-"],
        timeout=INDEX_SECONDS,
        env={**os.environ, **limits, **ca},
        text=f"{_REQUIREMENT}\n",
    )
    if tried.ok:
        return Finding(Status.FINE, "Python index", "answers (through uv's configuration)")
    detail = f"uv cannot resolve {_REQUIREMENT}: {tried.last(2)}"
    fix = (
        "name an index that can be reached: UV_DEFAULT_INDEX, or HTTPS_PROXY for the way to it; "
        "SSL_CERT_FILE for a CA of your network"
    )
    return Finding(Status.MISSING, "Python index", detail, fix)


@dataclass(frozen=True)
class CaState:
    """The bundle that programs here trust, and how many of its CAs are on no public list."""

    bundle: Path | None
    named_by: str = "the system's bundle"
    private: int = 0

    def choose(self, configured: str | None) -> str | None:
        """Return the CA bundle for builds: the settings' while it exists, else a private one."""
        if configured and Path(configured).is_file():
            return configured
        return str(self.bundle) if self.private else None


def read_ca_state(environment: Mapping[str, str] = os.environ) -> CaState:
    """Return which CA bundle is in use here, and whether a build without it may fail."""
    name = next((name for name in CA_VARIABLES if environment.get(name)), None)
    if name:
        bundle = Path(environment[name])
        return CaState(bundle, name, _private(bundle))
    system = next((path for path in SYSTEM_BUNDLES if path.is_file()), None)
    return CaState(system, private=_private(system)) if system else CaState(None)


def check_ca(state: CaState, configured: str | None) -> Finding:
    """Return whether builds get the CAs that this machine trusts."""
    what = "CA bundle"
    if configured and Path(configured).is_file():
        detail = f"{configured}, given to builds as a secret (imgbuild.local.yaml)"
        return Finding(Status.FINE, what, detail)
    if state.bundle and not state.bundle.is_file():
        detail = f"{state.named_by} names {state.bundle}, which does not exist"
        return Finding(Status.MISSING, what, detail, f"unset {state.named_by}")
    if not state.private:
        return Finding(Status.FINE, what, "no private CA in use")
    detail = f"{state.bundle} ({state.named_by}) holds {state.private} private CA(s)"
    detail = f"{detail}; builds need it as a secret"
    return Finding(Status.WARNING, what, detail, "imgbuild doctor --write")


def _private(bundle: Path) -> int:
    """Return how many CAs of ``bundle`` are neither Mozilla's nor one of Debian's copies."""
    import certifi  # noqa: PLC0415 - 300 KB that only the doctor needs

    files = [*_PUBLIC_CAS.rglob("*.crt"), Path(certifi.where())]
    public: set[str] = set().union(*map(_certificates, files))
    return len(_certificates(bundle) - public)


def _certificates(path: Path) -> set[str]:
    """Return the fingerprints of a file's certificates; none if it cannot be read."""
    with suppress(OSError, UnicodeDecodeError, ValueError):
        blocks = [part.split(_END)[0] for part in path.read_text("utf-8").split(_BEGIN)[1:]]
        ders = [ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{block}{_END}\n") for block in blocks]
        return {sha256(der).hexdigest() for der in ders}
    return set()
