"""``imgbuild audit``: compare the pins with the artifacts themselves."""

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from imgbuild.cli import options
from imgbuild.cli.options import flag, info, print_result, select, takes_selection
from imgbuild.errors import CheckFailedError, InputError, MachineError
from imgbuild.matrix.selection import Selection
from imgbuild.project import Project
from imgbuild.text import aligned, counted

if TYPE_CHECKING:
    from imgbuild.audit.audit import ArtifactOutcome, AuditOutcome
    from imgbuild.yaml_file import Location

_WIDTH = 100
#: What JSON has of an input that is no Python package, beside its seconds.
_INPUT = ("name", "url", "sha256", "state", "detail", "bytes_read")
_HEADER = (
    "artifact", "version", "size", "state", "CUDA", "cuDNN", "compiler", "ABI", "glibc", "read", "s"
)  # fmt: skip


@takes_selection()
def audit(
    selection: Selection,
    offline: bool = flag("--offline", "Compare with images/evidence.json only; use no network."),
    write: bool = flag("--write", "Write the facts to images/evidence.json."),
    refresh: bool = flag("--refresh", "Read all wheels again."),
    download: bool = flag("--download", "Download the other inputs, to verify their sha256."),
    strict: bool = flag("--strict", "Exit 1 also if an input cannot be reached."),
    as_json: bool = options.JSON,
    checkout: Project = options.PROJECT,
) -> None:
    """Compare the pins with wheels, sources and downloads."""
    from imgbuild.audit.audit import OnlineAudit, audit_offline, needs_of, write_evidence
    from imgbuild.audit.reachability import other_inputs
    from imgbuild.dockerfile.lockfile import read_lock
    from imgbuild.matrix.images import all_images
    from imgbuild.yaml_file import read_document

    if offline and (write or refresh or download or strict):
        raise InputError(
            "--offline cannot be combined with --write, --refresh, --download or --strict."
        )
    if write:
        options.require_own(checkout, "audit --write")
    # Without a selection all images are audited.
    images = select(checkout, selection.or_everything)
    matrix, needs = images[0].matrix, needs_of(images)
    names = sorted({name for image in images for name in image.lock_names})
    here = [name for name in names if offline or (checkout.locks / name).exists()]
    locks = {name: read_lock(checkout.locks / name) for name in here}
    if offline:
        outcome = audit_offline(needs, locks, matrix.evidence.facts)
    else:
        known = {} if refresh else matrix.evidence.facts
        sites = options.sites_of(checkout, matrix)
        others = other_inputs(images, checkout, sites)
        online = OnlineAudit(sites.client(), sites, locks, known, download, info)
        outcome = online.run(needs, others)
    position = read_document(checkout.matrix).position
    print_result(_as_json(outcome, position), _lines(outcome, position), as_json=as_json)
    if write:
        found = [one.facts for one in outcome.artifacts if one.facts]
        changed = write_evidence(checkout.evidence, found, needs_of(all_images(matrix)))
        info(f"images/evidence.json: {'written' if changed else 'unchanged'}.")
    _conclude(outcome, strict=strict)


def _lines(outcome: "AuditOutcome", position: "Callable[[Location], str]") -> list[str]:
    lines = aligned([_HEADER, *map(_row, outcome.artifacts)])
    if outcome.inputs:
        rows = [(one.name, one.state, one.detail) for one in outcome.inputs]
        lines += ["", *aligned([("other input", "state", ""), *rows])]
    if outcome.contradictions:
        lines.append("")
    for found in outcome.contradictions:
        text = f"{found.subject}: {found.evidence}. {found.change[:1].upper()}{found.change[1:]}."
        lines.append(f"✗ {_place(found.place, position)} ({found.kind})")
        lines += textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    ")
    locks = outcome.locks
    hashes = f", {locks['hashes']} hashes of {locks['projects']} projects" * bool(locks["projects"])
    wheels = sum(bool(one.need.python_tag) for one in outcome.artifacts)
    summary = (
        f"{counted(wheels, 'wheel')}, "
        f"{counted(len(outcome.artifacts) - wheels, 'source distribution')}, "
        f"{counted(locks['locks'], 'lock')}{hashes}: "
        f"{counted(len(outcome.contradictions), 'contradiction')}; "
        f"{outcome.bytes_read / 1e6:.1f} MB read in {outcome.seconds:.1f} s."
    )
    return [*lines, "", summary]


def _row(one: "ArtifactOutcome") -> tuple[str, ...]:
    from imgbuild.matrix.evidence import WheelFacts

    facts, built = one.facts, ("-",) * 5
    if isinstance(facts, WheelFacts):
        gpu = (facts.version_of("cudart") or "-", facts.version_of("cudnn") or "-")
        built = (*gpu, facts.compiler, str(facts.cxx11_abi), facts.glibc)
    size = f"{facts.size / 1e6:.1f} MB" if facts and facts.size else "-"
    took = ("-", "-")
    if one.bytes_read:
        took = (f"{one.bytes_read / 1e6:.1f} MB", f"{one.seconds:.1f}")
    return (one.need.distribution, one.need.version, size, one.state, *built, *took)


def _place(place: "Location | str", position: "Callable[[Location], str]") -> str:
    """Return ``matrix.yaml:LINE:COLUMN KEYS``, or the file that is meant."""
    return place if isinstance(place, str) else f"{position(place)} {'.'.join(map(str, place))}"


def _as_json(outcome: "AuditOutcome", position: "Callable[[Location], str]") -> dict[str, Any]:
    """Return everything that the text says; sizes in bytes, times in seconds."""
    return {
        "wheels": [_artifact_json(one) for one in outcome.artifacts if one.need.python_tag],
        "sdists": [_artifact_json(one) for one in outcome.artifacts if not one.need.python_tag],
        "locks": outcome.locks,
        "inputs": [
            {**{key: getattr(one, key) for key in _INPUT}, "seconds": round(one.seconds, 2)}
            for one in outcome.inputs
        ],
        "contradictions": [
            {**vars(one), "place": _place(one.place, position)} for one in outcome.contradictions
        ],
        "unread": outcome.unread,
        "bytes_read": outcome.bytes_read,
        "seconds": round(outcome.seconds, 2),
    }


def _artifact_json(one: "ArtifactOutcome") -> dict[str, Any]:
    facts = one.facts.model_dump() if one.facts else None
    found = {
        "distribution": one.need.distribution,
        "version": one.need.version,
        "state": one.state,
        "facts": facts,
        "bytes_read": one.bytes_read,
        "seconds": round(one.seconds, 2),
        "problem": one.problem,
    }
    if facts and one.need.python_tag:
        found["sha256"] = facts.pop("sha256")
    return found


def _conclude(outcome: "AuditOutcome", *, strict: bool) -> None:
    from imgbuild.audit.reachability import AWAY

    unread = "\n".join(outcome.unread)
    if outcome.contradictions:
        count = counted(len(outcome.contradictions), "contradiction")
        text = f"{count} between pins and artifacts; see above."
        raise CheckFailedError("\n".join(filter(None, [text, unread])))
    if unread:
        raise MachineError(f"no contradiction, but not everything could be read:\n{unread}")
    away = [one.name for one in outcome.inputs if one.state == AWAY]
    if strict and away:
        raise CheckFailedError(
            f"Not reachable from here, which --strict forbids: {', '.join(away)}."
        )
