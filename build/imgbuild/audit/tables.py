"""Show an audit's outcome as text of 100 columns, and as JSON."""

import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from imgbuild.audit.audit import ArtifactOutcome, AuditOutcome
from imgbuild.audit.compare import Contradiction
from imgbuild.audit.evidence import WheelFacts
from imgbuild.audit.reachability import InputState
from imgbuild.yaml_file import Location

_WIDTH = 100
_HEADER = (
    "artifact", "version", "size", "state", "CUDA", "cuDNN", "compiler", "ABI", "glibc", "read", "s"
)  # fmt: skip

Position = Callable[[Location], str]


def table(outcome: AuditOutcome) -> list[tuple[str, ...]]:
    """Return a row an artifact, below a header; sizes in MB, times in seconds."""
    return [_HEADER, *(_row(one) for one in (*outcome.wheels, *outcome.sdists))]


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


def input_rows(states: Iterable[InputState]) -> list[tuple[str, ...]]:
    """Return a row for each other input."""
    return [("other input", "state", ""), *((s.input.name, s.state, s.detail) for s in states)]


def contradiction_lines(found: Iterable[Contradiction], position: Position) -> list[str]:
    """Return each contradiction: where it is, what the artifact says, what to change."""
    lines: list[str] = []
    for one in found:
        text = f"{one.subject}: {one.evidence}. {one.change[:1].upper()}{one.change[1:]}."
        lines.append(f"✗ {place_text(one, position)} ({one.kind})")
        lines += textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return lines


def place_text(one: Contradiction, position: Position) -> str:
    """Return ``matrix.yaml:LINE:COLUMN KEYS``, or the file that is meant."""
    if isinstance(one.place, str):
        return one.place
    return f"{position(one.place)} {'.'.join(map(str, one.place))}"


def summary(outcome: AuditOutcome) -> str:
    """Return one line: what was compared, what it took."""
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
        "wheels": [_artifact_json(one) for one in outcome.wheels],
        "sdists": [_artifact_json(one) for one in outcome.sdists],
        "locks": vars(outcome.locks),
        "inputs": [_input_json(state) for state in outcome.inputs],
        "contradictions": [
            {**vars(one), "place": place_text(one, position)} for one in outcome.contradictions
        ],
        "unread": list(outcome.unread),
        "bytes_read": outcome.bytes_read,
        "seconds": round(outcome.seconds, 2),
    }


def _artifact_json(one: ArtifactOutcome) -> dict[str, Any]:
    facts = one.facts
    known: dict[str, Any] = {"facts": vars(facts) if facts else None}
    if isinstance(facts, WheelFacts):
        known = {"sha256": facts.sha256, "facts": facts.as_json()}
    return {
        "distribution": one.distribution,
        "version": one.version,
        "state": one.state,
        "bytes_read": one.bytes_read,
        "seconds": round(one.seconds, 2),
        "problem": one.problem,
        **known,
    }


def _input_json(state: InputState) -> dict[str, Any]:
    return {
        "name": state.input.name,
        "url": state.input.url,
        "sha256": state.input.sha256,
        "state": state.state,
        "detail": state.detail,
        "bytes_read": state.bytes_read,
        "seconds": round(state.seconds, 2),
    }
