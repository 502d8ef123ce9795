"""Diagnose a failed build from its steps."""

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from imgbuild.core.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.engine.steps import BuildSteps, Step

STEP_WIDTH = 160
#: The number of lines at the end of a step's output that are searched for a known fault.
LAST_LINES = 10
_ERROR = "ERROR: "
#: The start of a crash report of a Go program. buildx can crash when it loses a builder.
_CRASH = "panic: "
_TARGET_ERROR = re.compile(r"ERROR: target ([A-Za-z0-9_-]+): ")


@dataclass(frozen=True)
class BuildFault:
    """A known cause of failed builds.

    - ``signs``: texts in errors that mean this cause, in lower case, separated by ``|``
    - ``advice``: what the user can do
    - ``of_machine``: this machine is the cause, for every image. A wrong sha256 is a fault of the
      matrix or the upstream, and the cause of a step that hangs is not known.
    - ``stops_all``: no other image can be built. An unreachable upstream stops only the images that
      need it.
    """

    kind: str
    signs: str
    advice: str
    of_machine: bool = True
    stops_all: bool = False


#: The signs are errors of imgbuild itself, BuildKit, curl, wget, apt, pip, uv, Go and Python. The
#: first match wins, because a full disk and a lost engine cause many other errors.
FAULTS = (
    # `BuildSteps.find_overdue` reports the first two. They come first because an error that a step
    # wrote earlier is not why it hangs.
    BuildFault(
        "silent",
        "the engine said nothing for more than",
        "The build was stopped. Read the engine's log, restart the engine and build again; "
        "finished steps are kept. 'imgbuild doctor' checks the engine.",
        stops_all=True,
    ),
    BuildFault(
        "hung",
        "(the limit of a step)",
        "The step was stopped, also in the engine. If it only needs more time, raise the limit: "
        "set engine.step_timeout in imgbuild.local.yaml (0: no limit), or use `imgbuild build "
        "--step-timeout`.",
        of_machine=False,
    ),
    BuildFault(
        "checksum",
        "digest mismatch sha256:|hash mismatch for|do not match the hashes|hash sum mismatch"
        "|computed checksum did not match|computed checksums did not match",
        "A download does not have the pinned hash. Do not build again until you know whether the "
        "upstream replaced the file or the pin (matrix or lock) is wrong.",
        of_machine=False,
    ),
    BuildFault(
        "disk",
        "no space left on device|disk quota exceeded",
        "The engine's disk is full. Free space with 'docker image prune' and 'docker builder "
        "prune'. 'imgbuild doctor' says how much a build needs.",
        stops_all=True,
    ),
    BuildFault(
        "engine",
        "cannot connect to the docker daemon|permission denied while trying to connect"
        "|error reading from server|failed to receive status|code = unavailable"
        "|failed to list workers|failed to create endpoint|network bridge not found"
        "|database not open",
        "The engine cannot be reached, or stopped during the build. Read its log, restart it and "
        "build again; finished steps are kept. 'imgbuild doctor' checks the engine.",
        stops_all=True,
    ),
    BuildFault(
        "cache",
        "invalid output path: stat|layer does not exist",
        "The engine has lost part of its build cache. Remove the cache with 'docker builder "
        "prune --all', then build again.",
    ),
    # Before "unreachable", because its error can contain "context deadline exceeded". Builds that
    # need the same step at the same time share it.
    BuildFault(
        "session",
        "no active session|grpc: the client connection is closing",
        "The client that gives this step its secrets and files is gone. Perhaps it was running "
        "another build of the same step and was stopped. Build again; finished steps are kept.",
    ),
    BuildFault(
        "buildx",
        "invalid progress mode",
        "This buildx cannot report its progress as JSON (--progress=rawjson). Install a newer "
        "buildx, or set engine.buildx in imgbuild.local.yaml to one. 'imgbuild doctor' checks it.",
        stops_all=True,
    ),
    BuildFault(
        "certificate",
        "certificate verify failed|certificate signed by unknown authority"
        "|invalid peer certificate|unable to get local issuer certificate"
        "|certificate is not trusted|x509: |server gave http response to https client",
        "The certificate of an upstream is not trusted. If this network replaces certificates with "
        "its own, set ca_bundle in imgbuild.local.yaml to the network's CA bundle.",
    ),
    BuildFault(
        "unreachable",
        "could not resolve|temporary failure in name resolution|temporary failure resolving"
        "|name or service not known|unable to resolve host|failed to lookup address"
        "|no such host|dns error|dial tcp|i/o timeout|network is unreachable|no route to host"
        "|connection refused|connection timed out|operation timed out|tls handshake timeout"
        "|could not connect to|failed to connect to|failed to establish a new connection"
        "|error sending request for url|context deadline exceeded|client.timeout exceeded"
        "|connection reset by peer|unexpected eof|tls: |exit code: 124",  # timeout(1)
        "An upstream cannot be reached from inside a build. Check the network and the proxy. "
        "'imgbuild doctor' tries each upstream.",
    ),
)


class BuildFailedError(ImgbuildError):
    """A step of a build failed, or a download did not have the pinned hash.

    ``target`` is an image or a stage. ``cause`` is the error itself, ``fault`` its known cause. The
    exit code is that of `MachineError` if the fault is this machine's, for example its disk, engine
    or network.
    """

    def __init__(  # noqa: PLR0913 - the facts about a failure
        self,
        target: str,
        *,
        step: str,
        cause: str,
        tail: tuple[str, ...],
        log: Path,
        fault: BuildFault | None = None,
    ) -> None:
        place = ""
        if step:
            shortened = textwrap.shorten(step, STEP_WIDTH)
            place = f" in the step '{shortened}'"
        parts = [f"Building {target} failed{place}: {cause}."]
        if fault:
            parts.append(fault.advice)
        parts.append(f"The whole output is in {log}.")
        if tail:
            lines = [f"\n    {line}" for line in tail]
            parts.append("Its last lines:" + "".join(lines))
        super().__init__(" ".join(parts))
        self.step = step
        self.cause = cause
        self.tail = tail
        self.log = log
        self.fault = fault
        self.exit_code = CheckFailedError.exit_code
        if fault and fault.of_machine:
            self.exit_code = MachineError.exit_code


def build_error(target: str, steps: BuildSteps, log: Path) -> BuildFailedError:
    """Return the error of a failed build, with its known fault, if any."""
    errors = [text for text in steps.remarks if text.startswith(_ERROR)]
    crashes = [text for text in steps.remarks if text.startswith(_CRASH)]
    # The last message, in case the build failed outside any step.
    *_, last = errors or crashes or steps.remarks or ["buildx printed nothing"]
    last = _TARGET_ERROR.sub("", last).removeprefix(_ERROR)
    step = steps.failed or Step(0, "", "failed", error=last)
    tail = tuple(step.tail)
    # Omit the command that the error quotes, because the step's name shows it already.
    essence = step.error.rpartition("did not complete successfully: ")[2]
    essence = essence.removeprefix("failed to solve: ")
    cause = " ".join(essence.split())
    fault = find_fault([step.error, *tail[-LAST_LINES:], *errors])
    return BuildFailedError(
        target, step=step.name, cause=cause.rstrip(".?!"), tail=tail, log=log, fault=fault
    )


def find_fault(lines: Iterable[str]) -> BuildFault | None:
    """Return the known fault that ``lines`` show, or ``None``.

    Pass only the error and the last lines of the failed step. An earlier error may have been
    overcome by a retry.
    """
    words = [line.lower().split() for line in lines]
    text = "\n".join(map(" ".join, words))
    for fault in FAULTS:
        signs = fault.signs.split("|")
        if any(sign in text for sign in signs):
            return fault
    return None
