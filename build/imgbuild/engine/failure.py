"""Diagnose a failed build from its steps."""

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from imgbuild.core.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.engine.steps import BuildSteps, Step

STEP_WIDTH = 160
#: How near to its end a step's output can say why it failed.
LAST_LINES = 10
_ERROR = "ERROR: "
#: The first line of what a program of Go says as it crashes; buildx may, where it loses a builder.
_CRASH = "panic: "
_TARGET_ERROR = re.compile(r"ERROR: target ([A-Za-z0-9_-]+): ")


@dataclass(frozen=True)
class BuildFault:
    """A known cause of failed builds, its signs in small letters, and what to do.

    ``of_machine``: the cause is this machine, for all images alike. A wrong sha256 is the matrix's
    or the upstream's fault, a step that hangs may be anybody's. ``stops_all``: no other image can
    be built either; an upstream that cannot be reached is missed only by the images that need it.
    """

    kind: str
    signs: str
    advice: str
    of_machine: bool = True
    stops_all: bool = False


#: In the words of imgbuild itself, BuildKit, curl, wget, apt, pip, uv, Go and Python. The first
#: match wins: a full disk and a lost engine bring all sorts of other errors with them.
FAULTS = (
    # The first two are of `BuildSteps.overdue`: what a step tried before it hung is not its fault.
    BuildFault(
        "silent",
        "the engine said nothing for more than",
        "The build was stopped. 'imgbuild doctor' checks the engine; read its log, restart "
        "it and build again: finished steps are kept.",
        stops_all=True,
    ),
    BuildFault(
        "hung",
        "(the limit of a step)",
        "It was stopped, also in the engine. If it only needs more time, raise the limit: set "
        "engine.step_timeout in imgbuild.local.yaml (0: no limit), or use `imgbuild build "
        "--step-timeout`.",
        of_machine=False,
    ),
    BuildFault(
        "checksum",
        "digest mismatch sha256:|hash mismatch for|do not match the hashes|hash sum mismatch"
        "|computed checksum did not match|computed checksums did not match",
        "A download is not what was pinned. Do not build until you know whether the upstream "
        "replaced the file, or the pin (matrix or lock) is wrong.",
        of_machine=False,
    ),
    BuildFault(
        "disk",
        "no space left on device|disk quota exceeded",
        "The engine's disk is full. Free space with 'docker image prune' and 'docker builder "
        "prune'; 'imgbuild doctor' says how much a build needs.",
        stops_all=True,
    ),
    BuildFault(
        "engine",
        "cannot connect to the docker daemon|permission denied while trying to connect"
        "|error reading from server|failed to receive status|code = unavailable"
        "|failed to list workers|failed to create endpoint|network bridge not found"
        "|database not open",
        "The engine cannot be reached, or stopped during the build. Read its log, restart it and "
        "build again: finished steps are kept. 'imgbuild doctor' checks it.",
        stops_all=True,
    ),
    BuildFault(
        "cache",
        "invalid output path: stat|layer does not exist",
        "The engine has lost a part of its build cache. Remove the cache with 'docker builder "
        "prune --all', and build again.",
    ),
    # Before what its deadline looks like. The step is one for all who build it at the same moment.
    BuildFault(
        "session",
        "no active session|grpc: the client connection is closing",
        "The client that this step asks for secrets and files is gone, perhaps another build of "
        "the same step that was stopped. Build again: finished steps are kept.",
    ),
    BuildFault(
        "buildx",
        "invalid progress mode",
        "This buildx cannot report its progress as JSON (--progress=rawjson). Install a newer one, "
        "or name it as engine.buildx in imgbuild.local.yaml; 'imgbuild doctor' checks it.",
        stops_all=True,
    ),
    BuildFault(
        "certificate",
        "certificate verify failed|certificate signed by unknown authority"
        "|invalid peer certificate|unable to get local issuer certificate"
        "|certificate is not trusted|x509: |server gave http response to https client",
        "The certificate of an upstream is not trusted. If this network re-signs TLS, set "
        "ca_bundle in imgbuild.local.yaml to the network's CA bundle.",
    ),
    BuildFault(
        "unreachable",
        "could not resolve|temporary failure in name resolution|temporary failure resolving"
        "|name or service not known|unable to resolve host|failed to lookup address"
        "|no such host|dns error|dial tcp|i/o timeout|network is unreachable|no route to host"
        "|connection refused|connection timed out|operation timed out|tls handshake timeout"
        "|could not connect to|failed to connect to|failed to establish a new connection"
        "|error sending request for url|context deadline exceeded|client.timeout exceeded"
        "|connection reset by peer|unexpected eof|tls: |exit code: 124",  # of timeout(1)
        "An upstream cannot be reached from inside a build. Check the network and the proxy; "
        "'imgbuild doctor' tries each upstream.",
    ),
)


class BuildFailedError(ImgbuildError):
    """A step of a build failed, or a download was not what was pinned.

    ``target`` is an image or a stage, ``cause`` why it failed, as far as it is known. The exit code
    is that of `MachineError` if this machine could not build: disk, engine, network.
    """

    def __init__(  # noqa: PLR0913 - what is known of a failure
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
    """Return the error of a build that has ended with one: the machine's fault or its own."""
    errors = [text for text in steps.remarks if text.startswith(_ERROR)]
    crashes = [text for text in steps.remarks if text.startswith(_CRASH)]
    # The final word of a build that failed outside any step.
    *_, last = errors or crashes or steps.remarks or ["buildx said nothing"]
    last = _TARGET_ERROR.sub("", last).removeprefix(_ERROR)
    step = steps.failed or Step(0, "", "failed", error=last)
    tail = tuple(step.tail)
    # Without the command that it quotes, which the step's name already shows.
    essence = step.error.rpartition("did not complete successfully: ")[2]
    essence = essence.removeprefix("failed to solve: ")
    cause = " ".join(essence.split())
    fault = find_fault([step.error, *tail[-LAST_LINES:], *errors])
    return BuildFailedError(
        target, step=step.name, cause=cause.rstrip(".?!"), tail=tail, log=log, fault=fault
    )


def find_fault(lines: Iterable[str]) -> BuildFault | None:
    """Return the known fault that ``lines`` show, or ``None``.

    Give it the failing step's error and its last lines only: an earlier retry that worked in the
    end would look like the fault.
    """
    words = [line.lower().split() for line in lines]
    text = "\n".join(map(" ".join, words))
    for fault in FAULTS:
        signs = fault.signs.split("|")
        if any(sign in text for sign in signs):
            return fault
    return None
