"""An audit's outcome as text of 100 columns, and as JSON for programs."""

import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from imgbuild.audit.facts import Contradiction
from imgbuild.audit.other_inputs import InputState
from imgbuild.audit.outcome import Outcome, SdistOutcome, WheelOutcome
from imgbuild.yaml_file import Location

_WIDTH = 100
_HEADER = (
    "artifact", "version", "size", "state", "CUDA", "cuDNN", "compiler", "ABI", "glibc", "read", "s"
)  # fmt: skip

Position = Callable[[Location], str]


def table(outcome: Outcome) -> list[tuple[str, ...]]:
    """Return a row an artifact, below a header; sizes in MB, times in seconds."""
    wheels = (_wheel_row(wheel) for wheel in outcome.wheels)
    return [_HEADER, *wheels, *(_sdist_row(sdist) for sdist in outcome.sdists)]


def _wheel_row(wheel: WheelOutcome) -> tuple[str, ...]:
    took = (_megabytes(wheel.bytes_read), f"{wheel.seconds:.1f}" if wheel.bytes_read else "-")
    facts = wheel.facts
    if facts is None:
        return (wheel.distribution, wheel.version, "-", wheel.state, *("-" * 5), *took)
    gpu = (facts.version_of("cudart") or "-", facts.version_of("cudnn") or "-")
    built = (facts.compiler, str(facts.cxx11_abi), facts.glibc)
    size = _megabytes(facts.size)
    return (wheel.distribution, wheel.version, size, wheel.state, *gpu, *built, *took)


def _sdist_row(sdist: SdistOutcome) -> tuple[str, ...]:
    size = _megabytes(sdist.facts.size or 0) if sdist.facts else "-"
    took = (_megabytes(sdist.bytes_read), f"{sdist.seconds:.1f}" if sdist.bytes_read else "-")
    return ("horovod", sdist.version, size, sdist.state, *("-" * 5), *took)


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


def summary(outcome: Outcome) -> str:
    """Return one line: what was compared, what it took."""
    locks = outcome.locks
    hashes = f", {locks.hashes} hashes of {locks.projects} projects" if locks.projects else ""
    wheels, sdists = len(outcome.wheels), len(outcome.sdists)
    return (
        f"{wheels} wheels, {sdists} source distributions, {locks.locks} locks{hashes}: "
        f"{len(outcome.contradictions)} contradictions; {outcome.bytes_read / 1e6:.1f} MB read "
        f"in {outcome.seconds:.1f} s."
    )


def as_json(outcome: Outcome, position: Position) -> dict[str, Any]:
    """Return everything that the text says; sizes in bytes, times in seconds."""
    return {
        "wheels": [_wheel_json(wheel) for wheel in outcome.wheels],
        "sdists": [_sdist_json(sdist) for sdist in outcome.sdists],
        "locks": vars(outcome.locks),
        "inputs": [_input_json(state) for state in outcome.inputs],
        "contradictions": [
            {**vars(one), "place": place_text(one, position)} for one in outcome.contradictions
        ],
        "unread": list(outcome.unread),
        "bytes_read": outcome.bytes_read,
        "seconds": round(outcome.seconds, 2),
    }


def _wheel_json(wheel: WheelOutcome) -> dict[str, Any]:
    facts = wheel.facts
    return {
        "distribution": wheel.distribution,
        "version": wheel.version,
        **_took(wheel),
        "sha256": facts.sha256 if facts else None,
        "facts": facts.as_json() if facts else None,
    }


def _sdist_json(sdist: SdistOutcome) -> dict[str, Any]:
    facts = vars(sdist.facts) if sdist.facts else None
    return {"distribution": "horovod", "version": sdist.version, **_took(sdist), "facts": facts}


def _took(one: WheelOutcome | SdistOutcome) -> dict[str, Any]:
    return {
        "state": one.state,
        "bytes_read": one.bytes_read,
        "seconds": round(one.seconds, 2),
        "problem": one.problem,
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
