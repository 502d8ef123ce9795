"""Recognise, in the output of a failed build, the faults that are not the Dockerfile's."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["hung", "silent", "checksum", "disk", "engine", "certificate", "unreachable"]


@dataclass(frozen=True)
class Diagnosis:
    """What went wrong, the line that shows it, and what to do."""

    kind: Kind
    line: str
    advice: str

    @property
    def of_machine(self) -> bool:
        """Whether this machine is to blame, for all images alike.

        A wrong sha256 is the matrix's or the upstream's fault, a step that hangs may be anybody's.
        """
        return self.kind not in {"checksum", "hung"}

    @property
    def of_all(self) -> bool:
        """Whether no other image can be built either: the engine has no room, or does not answer.

        An upstream that cannot be reached is missed only by the images that need it.
        """
        return self.kind in {"disk", "engine", "silent"}


_ADVICE: dict[Kind, str] = {
    "hung": (
        "It was stopped, in the engine too. If it only needs longer, give it longer with "
        "--step-timeout, or with engine.step_timeout in imgbuild.local.yaml (0: no limit)."
    ),
    "silent": (
        "The build was given up. 'imgbuild doctor' checks the engine; look into its log, restart "
        "it and build again: finished steps are kept."
    ),
    "checksum": (
        "A download is not what was pinned. Do not build on: find out whether the upstream "
        "replaced the file, or the pin (matrix or lock) is wrong."
    ),
    "disk": (
        "The engine's disk is full. Free some with 'docker image prune' and 'docker builder "
        "prune'; 'imgbuild doctor' says how much a build needs."
    ),
    "engine": (
        "The engine cannot be reached, or stopped in mid-build. Look into its log, restart it and "
        "build again: finished steps are kept. 'imgbuild doctor' checks it."
    ),
    "certificate": (
        "The certificate of an upstream is not trusted. If this network re-signs TLS, set "
        "ca_bundle in imgbuild.local.yaml to the network's CA bundle."
    ),
    "unreachable": (
        "An upstream cannot be reached from inside a build. Check the network and the proxy; "
        "'imgbuild doctor' tries each upstream."
    ),
}
#: The words of imgbuild itself, BuildKit, curl, wget, apt, pip, uv, Go and Python. First match
#: wins: a full disk and a lost engine bring all sorts of other errors with them.
_SIGNS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    # The first two are StepLimit's; what a step tried before it hung is not why it failed.
    ("silent", ("the engine said nothing for more than",)),
    ("hung", ("(--step-timeout",)),
    (
        "checksum",
        (
            "digest mismatch sha256:",
            "hash mismatch for",
            "do not match the hashes",
            "hash sum mismatch",
            "computed checksum did not match",
            "computed checksums did not match",
        ),
    ),
    ("disk", ("no space left on device", "disk quota exceeded")),
    (
        "engine",
        (
            "cannot connect to the docker daemon",
            "permission denied while trying to connect",
            "error reading from server: eof",
            "failed to receive status",
            "code = unavailable",
            "failed to list workers",
            "failed to create endpoint",
            "network bridge not found",
            "database not open",
        ),
    ),
    (
        "certificate",
        (
            "certificate verify failed",
            "certificate signed by unknown authority",
            "invalid peer certificate",
            "unable to get local issuer certificate",
            "certificate is not trusted",
        ),
    ),
    (
        "unreachable",
        (
            "could not resolve",
            "temporary failure in name resolution",
            "temporary failure resolving",
            "name or service not known",
            "unable to resolve host",
            "failed to lookup address",
            "no such host",
            "dns error",
            "dial tcp",
            "i/o timeout",
            "network is unreachable",
            "no route to host",
            "connection refused",
            "connection timed out",
            "operation timed out",
            "tls handshake timeout",
            "could not connect to",
            "failed to connect to",
            "failed to establish a new connection",
            "error sending request for url",
        ),
    ),
)


def diagnose(lines: Iterable[str]) -> Diagnosis | None:
    """Return the known fault that ``lines`` show, or ``None``.

    Give it the failing step's error and its last lines only: an earlier retry that worked in the
    end would look like the fault.
    """
    kept = [" ".join(line.split()) for line in lines]
    for kind, signs in _SIGNS:
        for line in kept:
            if any(sign in line.lower() for sign in signs):
                return Diagnosis(kind, line, _ADVICE[kind])
    return None
