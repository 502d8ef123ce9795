"""Diagnose a failed build from its events."""

import re
import textwrap
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from imgbuild.engine.progress import (
    BuildEvent,
    Item,
    Remark,
    StepOutput,
    bake_name,
    is_export,
    is_internal,
)
from imgbuild.errors import ImgbuildError

TAIL_LINES = 20
STEP_WIDTH = 160
#: A base image that the engine has is found in less, in seconds; pulling one is work.
FOUND_SECONDS = 1.0
#: How near to its end a step's output can say why it failed.
LAST_LINES = 10
_ERROR = "ERROR: "
#: The first line of what a program of Go says as it crashes; buildx may, where it loses a builder.
_CRASH = "panic: "
#: An export's words for what it wrote, and which of them the engine will call the image by: in a
#: graph driver the configuration, in a containerd store the manifest. Another builder than the
#: engine's own asks the engine which format it loads.
_IMAGE, _MANIFEST, _CONFIG = "writing image", "exporting manifest", "exporting config"
_WRITTEN = re.compile(rf"({_IMAGE}|{_MANIFEST}|{_CONFIG}) (sha256:[0-9a-f]{{64}}) done")
_ID_OF = {
    "exporting to image": (_IMAGE, _MANIFEST),
    "exporting to docker image format": (_CONFIG,),
    "exporting to oci image format": (_MANIFEST,),
}
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
    # The first two are StepLimit's; what a step tried before it hung is not why it failed.
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
        "|error reading from server: eof|failed to receive status|code = unavailable"
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


@dataclass(frozen=True)
class BuildFailure:
    """What is known of a failed build.

    ``failed`` failed by themselves; ``cancelled`` were only stopped because of those, and may be
    built again without them. What was exported before is in neither (buildx gives no ids then:
    building it again takes it from its cache).
    """

    failed: tuple[str, ...]
    cancelled: tuple[str, ...]
    step: str
    error: str
    tail: tuple[str, ...]
    log: Path
    fault: BuildFault | None = None

    def __str__(self) -> str:
        """Return the paragraph, with the last lines of output indented below it."""
        place = f" in the step '{textwrap.shorten(self.step, STEP_WIDTH)}'" if self.step else ""
        parts = [f"Building {', '.join(self.failed)} failed{place}: {self.error}."]
        if self.fault:
            parts.append(self.fault.advice)
        if self.cancelled:
            parts.append(f"Cancelled with it, not faulty: {', '.join(self.cancelled)}.")
        parts.append(f"The whole output is in {self.log}.")
        output = "".join(f"\n    {line}" for line in self.tail)
        return " ".join(parts) + (f" Its last lines:{output}" if output else "")


class BuildFailedError(ImgbuildError):
    """A step of an image failed, or a download was not what was pinned."""

    def __init__(self, failure: BuildFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class BuildStoppedError(BuildFailedError):
    """This machine could not build: disk, engine, network."""

    exit_code = 3


def works(event: BuildEvent) -> bool:
    """Return whether an ended step did something: no cache, no base image that is there."""
    found = "] FROM " in event.step and event.elapsed < FOUND_SECONDS
    return event.state != "cached" and not is_internal(event.step) and not found


@dataclass
class BuildRecord:
    """What the report of a failed build needs, and what each target led to, after how long.

    ``images`` are the ids of the images that were exported, by target.
    """

    targets: Sequence[str]
    images: dict[str, str] = field(default_factory=dict)
    _written: dict[tuple[int, str], str] = field(default_factory=dict)
    _tails: dict[int, deque[str]] = field(default_factory=dict)
    _failed: list[BuildEvent] = field(default_factory=list)
    _began: dict[str, float] = field(default_factory=dict)
    _exported: dict[str, float] = field(default_factory=dict)
    _work: dict[str, float] = field(default_factory=dict)
    _remarks: deque[str] = field(default_factory=lambda: deque(maxlen=100))

    def add(self, item: Item, now: float = 0.0) -> None:
        """Take in one item of the progress stream, at the time ``now`` of a monotonic clock."""
        match item:
            case StepOutput():
                self._tails.setdefault(item.number, deque(maxlen=TAIL_LINES)).append(item.text)
                if found := _WRITTEN.fullmatch(item.text):
                    self._written[item.number, found[1]] = found[2]
            case Remark():
                self._remarks.append(item.text)
            case BuildEvent(state="failed"):
                self._failed.append(item)
            case BuildEvent(state="done", target=str(target)):
                if is_export(item.step):
                    self._exported[target] = now
                    for kind in _ID_OF.get(item.step, ()):
                        if image_id := self._written.get((item.number, kind)):
                            self.images[target] = image_id
                if works(item):
                    began = now - item.elapsed
                    self._began[target] = min(self._began.get(target, began), began)
                    self._work[target] = self.work(target) + item.elapsed

    def seconds(self, target: str) -> float | None:
        """Return the wall time from a target's first step that worked to its export, if any."""
        exported, began = self._exported.get(target), self._began.get(target)
        return None if exported is None or began is None else exported - began

    def work(self, target: str) -> float:
        """Return the sum of the times of a target's steps that worked, shared ones included."""
        return self._work.get(target, 0.0)

    def error(self, log: Path) -> BuildFailedError:
        """Return the error of a build that has ended with one: the machine's fault or its own."""
        errors = [text for text in self._remarks if text.startswith(_ERROR)]
        crashes = [text for text in self._remarks if text.startswith(_CRASH)]
        # The final word of a build that failed outside any step.
        last = (errors or crashes or [*self._remarks] or ["buildx said nothing"])[-1]
        last = _TARGET_ERROR.sub("", last).removeprefix(_ERROR)
        first = self._failed[0] if self._failed else BuildEvent(None, "", "failed", error=last)
        tail = tuple(self._tails.get(first.number, ()))
        failed = self._failed_targets(errors)
        finished = {*failed, *self._exported}
        fault = find_fault([first.error, *tail[-LAST_LINES:], *errors])
        # Without the command that it quotes, which the step's name already shows.
        essence = first.error.rpartition("did not complete successfully: ")[2]
        essence = essence.removeprefix("failed to solve: ")
        failure = BuildFailure(
            failed=failed,
            cancelled=tuple(name for name in self.targets if name not in finished),
            step=first.step,
            error=" ".join(essence.split()).rstrip(".?!"),
            tail=tail,
            log=log,
            fault=fault,
        )
        return (BuildStoppedError if fault and fault.of_machine else BuildFailedError)(failure)

    def _failed_targets(self, errors: Iterable[str]) -> tuple[str, ...]:
        """Return the targets that failed; if none can be named, all that are not finished.

        Never none: a caller that goes on without the failed ones would go on for ever. An engine
        that stops right after the last export has finished all of them, and given no ids.
        """
        named = {event.target for event in self._failed}
        by_buildx = {found[1] for error in errors if (found := _TARGET_ERROR.match(error))}
        failed = [name for name in self.targets if name in named or bake_name(name) in by_buildx]
        unfinished = [name for name in self.targets if name not in self._exported]
        return tuple(failed or unfinished or self.targets)


def find_fault(lines: Iterable[str]) -> BuildFault | None:
    """Return the known fault that ``lines`` show, or ``None``.

    Give it the failing step's error and its last lines only: an earlier retry that worked in the
    end would look like the fault.
    """
    text = "\n".join(" ".join(line.lower().split()) for line in lines)
    found = (one for one in FAULTS if any(sign in text for sign in one.signs.split("|")))
    return next(found, None)
