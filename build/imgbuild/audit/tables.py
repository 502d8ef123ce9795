"""Show an audit's outcome as text of 100 columns, and as JSON."""

import textwrap
from collections.abc import Callable
from typing import Any

from imgbuild.audit.audit import ArtifactOutcome, AuditOutcome
from imgbuild.audit.compare import Contradiction
from imgbuild.audit.facts import WheelFacts, facts_json
from imgbuild.text import aligned
from imgbuild.yaml_file import Location

_WIDTH = 100
_HEADER = (
    "artifact", "version", "size", "state", "CUDA", "cuDNN", "compiler", "ABI", "glibc", "read", "s"
)  # fmt: skip

Position = Callable[[Location], str]


def as_text(outcome: AuditOutcome, position: Position) -> str:
    """Return the artifacts, the other inputs, the contradictions and a summary."""
    lines = aligned([_HEADER, *map(_row, (*outcome.wheels, *outcome.sdists))])
    if outcome.inputs:
        rows = [(one.input.name, one.state, one.detail) for one in outcome.inputs]
        lines += ["", *aligned([("other input", "state", ""), *rows])]
    if outcome.contradictions:
        lines.append("")
    for one in outcome.contradictions:
        text = f"{one.subject}: {one.evidence}. {one.change[:1].upper()}{one.change[1:]}."
        lines.append(f"✗ {_place(one, position)} ({one.kind})")
        lines += textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join([*lines, "", _summary(outcome)])


def _row(one: ArtifactOutcome) -> tuple[str, ...]:
    facts = one.facts
    built = ("-",) * 5
    if isinstance(facts, WheelFacts):
        gpu = (facts.version_of("cudart") or "-", facts.version_of("cudnn") or "-")
        built = (*gpu, facts.compiler, str(facts.cxx11_abi), facts.glibc)
    size = _megabytes(facts.size or 0) if facts else "-"
    took = (_megabytes(one.bytes_read), f"{one.seconds:.1f}" if one.bytes_read else "-")
    return (one.distribution, one.version, size, one.state, *built, *took)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size else "-"


def _place(one: Contradiction, position: Position) -> str:
    """Return ``matrix.yaml:LINE:COLUMN KEYS``, or the file that is meant."""
    if isinstance(one.place, str):
        return one.place
    return f"{position(one.place)} {'.'.join(map(str, one.place))}"


def _summary(outcome: AuditOutcome) -> str:
    locks = outcome.locks
    hashes = f", {locks.hashes} hashes of {locks.projects} projects" if locks.projects else ""
    wheels, sdists = len(outcome.wheels), len(outcome.sdists)
    return (
        f"{wheels} wheels, {sdists} source distributions, {locks.locks} locks{hashes}: "
        f"{len(outcome.contradictions)} contradictions; {outcome.bytes_read / 1e6:.1f} MB read "
        f"in {outcome.seconds:.1f} s."
    )


def as_json(outcome: AuditOutcome, position: Position) -> dict[str, Any]:
    """Return everything that the text says; sizes in bytes, times in seconds."""
    return {
        **vars(outcome),
        "wheels": [_artifact_json(one) for one in outcome.wheels],
        "sdists": [_artifact_json(one) for one in outcome.sdists],
        "locks": vars(outcome.locks),
        "inputs": [
            {
                "name": one.input.name,
                "url": one.input.url,
                "sha256": one.input.sha256,
                "state": one.state,
                "detail": one.detail,
                "bytes_read": one.bytes_read,
                "seconds": round(one.seconds, 2),
            }
            for one in outcome.inputs
        ],
        "contradictions": [
            {**vars(one), "place": _place(one, position)} for one in outcome.contradictions
        ],
        "seconds": round(outcome.seconds, 2),
    }


def _artifact_json(one: ArtifactOutcome) -> dict[str, Any]:
    facts = one.facts
    known: dict[str, Any] = {"facts": vars(facts) if facts else None}
    if isinstance(facts, WheelFacts):
        known = {"sha256": facts.sha256, "facts": facts_json(facts)}
    return {**vars(one), "seconds": round(one.seconds, 2), **known}
