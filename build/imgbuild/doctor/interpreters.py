"""Whether each CPython can be had: from its source, or from a prefix of this machine."""

import ssl
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from imgbuild.doctor.concurrently import NoAnswerError, within
from imgbuild.doctor.finding import Finding, Status, fine
from imgbuild.doctor.machine import Machine
from imgbuild.doctor.programs import Programs
from imgbuild.errors import InputError
from imgbuild.inputs.cpython_prefix import find_prefixes, verify_prefix
from imgbuild.settings import Interpreter, PrefixInterpreter, SourceInterpreter

TIMEOUT = 5.0
#: What turns a prefix into something that runs in an image, and the package that has it.
PREFIX_TOOLS = {"patchelf": "patchelf", "strip": "binutils"}


@dataclass(frozen=True)
class InterpreterState:
    """Where one CPython version could come from."""

    version: str
    url: str
    problem: str | None
    """Why the source cannot be downloaded; ``None`` if it can."""
    prefixes: tuple[Path, ...]
    """Prefixes of this machine with exactly this version, complete."""
    faults: tuple[str, ...] = ()
    """Why other prefixes cannot be used."""

    @property
    def reachable(self) -> bool:
        """Whether the source can be downloaded."""
        return self.problem is None


def open_url(url: str, ca_bundle: str | None) -> None:
    """Ask for the first byte of ``url``; a HEAD is refused by some mirrors."""
    context = ssl.create_default_context()
    if ca_bundle:
        context.load_verify_locations(ca_bundle)
    request = urllib.request.Request(url, headers={"Range": "bytes=0-0"})  # noqa: S310 - typed Url
    with urllib.request.urlopen(request, timeout=TIMEOUT, context=context):  # noqa: S310
        pass


def find_fault(prefix: Path, version: str) -> str | None:
    """Return why ``prefix`` is no complete CPython of exactly ``version``, or ``None``."""
    try:
        verify_prefix(prefix, version)
    except InputError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Probes:
    """The edge: how the network and this machine's prefixes are asked."""

    open: Callable[[str, str | None], None] = open_url
    find: Callable[[str], list[Path]] = find_prefixes
    fault: Callable[[Path, str], str | None] = find_fault


REAL = Probes()


def read_interpreter(
    version: str, url: str, named: Path | None, ca_bundle: str | None, probes: Probes = REAL
) -> InterpreterState:
    """Return where CPython ``version`` could come from; ``named`` is a prefix of the settings."""
    problem = None
    try:
        within(TIMEOUT + 1, lambda: probes.open(url, ca_bundle))
    except (OSError, NoAnswerError) as error:
        problem = str(error)
    candidates = dict.fromkeys([*([named] if named else []), *probes.find(version)])
    faults = {path: probes.fault(path, version) for path in candidates}
    prefixes = tuple(path for path, fault in faults.items() if fault is None)
    return InterpreterState(version, url, problem, prefixes, tuple(filter(None, faults.values())))


def choose_interpreter(state: InterpreterState, current: Interpreter | None) -> Interpreter | None:
    """Return where this CPython is taken from, or ``None`` if there is no way.

    The settings' prefix while it is valid, else the source, else another prefix.
    """
    if isinstance(current, PrefixInterpreter) and Path(current.path) in state.prefixes:
        return current
    if state.reachable:
        return SourceInterpreter()
    if state.prefixes:
        return PrefixInterpreter(source="prefix", path=str(state.prefixes[0]))
    return None


def check_interpreter(
    state: InterpreterState,
    chosen: Interpreter | None,
    machine: Machine,
    programs: Programs,
    *,
    recorded: bool,
) -> Finding:
    """Return whether CPython can be had the way that was chosen, and ``recorded`` in settings."""
    what = f"CPython {state.version}"
    unreachable = f"{state.url} does not answer ({state.problem})"
    if chosen is None:
        others = " ".join(state.faults) or "No local prefix has it."
        detail = f"{unreachable}. {others}"
        return Finding(Status.MISSING, what, detail, _how_to_bring(state.version))
    if not recorded:
        return _not_recorded(state, chosen, machine)
    if isinstance(chosen, SourceInterpreter):
        return fine(what, "compiled from its source, which can be downloaded")
    packages = missing_tools(programs)
    if packages:
        detail = f"the prefix {chosen.path} needs {', '.join(packages)} to go into an image"
        return Finding(Status.MISSING, what, detail, machine.install(*packages), packages)
    because = "" if state.reachable else f"; {unreachable}"
    return fine(what, f"local prefix {chosen.path}{because}")


def _not_recorded(state: InterpreterState, chosen: Interpreter, machine: Machine) -> Finding:
    """Return the row of a way that would do, while the settings still say another."""
    if isinstance(chosen, PrefixInterpreter):
        detail = f"{state.url} does not answer ({state.problem}), but {chosen.path} has it"
    else:
        detail = "the prefix of imgbuild.local.yaml cannot be used, but the source answers"
    return Finding(Status.MISSING, f"CPython {state.version}", detail, machine.doctor("--write"))


def missing_tools(programs: Programs) -> tuple[str, ...]:
    """Return the packages that a prefix needs and this machine lacks."""
    return tuple(package for tool, package in PREFIX_TOOLS.items() if not programs.find(tool))


def _how_to_bring(version: str) -> str:
    return (
        f"let this machine reach the source, or put CPython {version} into a prefix (built "
        "elsewhere, or by pyenv) and name it in imgbuild.local.yaml: "
        f"cpython: {{{version}: {{from: prefix, path: /opt/python-{version}}}}}"
    )
