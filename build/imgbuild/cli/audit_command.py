"""``imgbuild audit``: compare the pins with the artifacts themselves."""

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from imgbuild.cli import options
from imgbuild.cli.options import flag, info, print_result, select, takes_selection
from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.core.text import align_rows, count_text
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from imgbuild.core.yaml_file import Location
    from imgbuild.maintain.audit import AuditResult
    from imgbuild.maintain.compare import Artifact
    from imgbuild.maintain.reachability import OtherInput

_WIDTH = 100
#: The fields of an input in JSON, beside its seconds.
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
    from imgbuild.core.yaml_file import read_document
    from imgbuild.locks.lockfile import read_lock
    from imgbuild.maintain.audit import audit_offline, audit_online, list_artifacts, write_evidence
    from imgbuild.maintain.reachability import list_other_inputs
    from imgbuild.matrix.images import all_images

    if offline and (write or refresh or download or strict):
        raise InputError(
            "--offline cannot be combined with --write, --refresh, --download or --strict."
        )
    if write:
        options.require_own(checkout, "audit --write")
    # Without a selection all images are audited.
    images = select(checkout, selection.or_everything)
    matrix, artifacts = images[0].matrix, list_artifacts(images)
    names = sorted(set[str]().union(*(image.lock_names for image in images)))
    if not offline:
        names = [name for name in names if (checkout.locks / name).exists()]
    locks = {name: read_lock(checkout.locks / name) for name in names}
    if offline:
        result = audit_offline(artifacts, locks, matrix.evidence.facts)
    else:
        known = {} if refresh else matrix.evidence.facts
        sites = options.sites_of(checkout, matrix)
        inputs = list_other_inputs(images, checkout, sites)
        result = audit_online(artifacts, inputs, locks, sites, info, known=known, download=download)
    position = read_document(checkout.matrix).position
    print_result(_as_json(result, position), _lines(result, position), as_json=as_json)
    if write:
        needed = list_artifacts(all_images(matrix))
        changed = write_evidence(checkout.evidence, result.facts, needed)
        info(f"images/evidence.json: {'written' if changed else 'unchanged'}.")
    _raise_problems(result, strict=strict)


def _lines(result: "AuditResult", position: "Callable[[Location], str]") -> list[str]:
    lines = align_rows([_HEADER, *map(_row, result.artifacts)])
    if result.inputs:
        rows = [(item.name, item.state, item.detail) for item in result.inputs]
        lines += ["", *align_rows([("other input", "state", ""), *rows])]
    if result.contradictions:
        lines.append("")
    for contradiction in result.contradictions:
        change = f"{contradiction.change[:1].upper()}{contradiction.change[1:]}"
        text = f"{contradiction.subject}: {contradiction.evidence}. {change}."
        lines.append(f"✗ {_place(contradiction.place, position)} ({contradiction.kind})")
        lines += textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    ")
    locks = result.locks
    hashes = f", {locks['hashes']} hashes of {locks['projects']} projects" * bool(locks["projects"])
    wheels = sum(bool(artifact.python_tag) for artifact in result.artifacts)
    summary = (
        f"{count_text(wheels, 'wheel')}, "
        f"{count_text(len(result.artifacts) - wheels, 'source distribution')}, "
        f"{count_text(locks['locks'], 'lock')}{hashes}: "
        f"{count_text(len(result.contradictions), 'contradiction')}; "
        f"{result.bytes_read / 1e6:.1f} MB read in {result.seconds:.1f} s."
    )
    return [*lines, "", summary]


def _row(artifact: "Artifact") -> tuple[str, ...]:
    from imgbuild.matrix.evidence import WheelFacts

    facts, built = artifact.facts, ("-",) * 5
    if isinstance(facts, WheelFacts):
        gpu = (facts.version_of("cudart") or "-", facts.version_of("cudnn") or "-")
        built = (*gpu, facts.compiler, str(facts.cxx11_abi), facts.glibc)
    size = f"{facts.size / 1e6:.1f} MB" if facts and facts.size else "-"
    read = ("-", "-")
    if artifact.bytes_read:
        read = (f"{artifact.bytes_read / 1e6:.1f} MB", f"{artifact.seconds:.1f}")
    return (artifact.distribution, artifact.version, size, artifact.state, *built, *read)


def _place(place: "Location | str", position: "Callable[[Location], str]") -> str:
    """Return ``matrix.yaml:LINE:COLUMN KEYS``, or the file that is meant."""
    return place if isinstance(place, str) else f"{position(place)} {'.'.join(map(str, place))}"


def _as_json(result: "AuditResult", position: "Callable[[Location], str]") -> dict[str, Any]:
    """Return everything that the text says; sizes in bytes, times in seconds."""
    contradictions = [
        {**vars(contradiction), "place": _place(contradiction.place, position)}
        for contradiction in result.contradictions
    ]
    wheels = [artifact for artifact in result.artifacts if artifact.python_tag]
    sources = [artifact for artifact in result.artifacts if not artifact.python_tag]
    return {
        "wheels": [*map(_artifact_json, wheels)],
        "sdists": [*map(_artifact_json, sources)],
        "locks": result.locks,
        "inputs": [*map(_input_json, result.inputs)],
        "contradictions": contradictions,
        "unread": result.unread,
        "bytes_read": result.bytes_read,
        "seconds": round(result.seconds, 2),
    }


def _input_json(item: "OtherInput") -> dict[str, Any]:
    document = {key: getattr(item, key) for key in _INPUT}
    return {**document, "seconds": round(item.seconds, 2)}


def _artifact_json(artifact: "Artifact") -> dict[str, Any]:
    facts = artifact.facts.model_dump() if artifact.facts else None
    document = {
        "distribution": artifact.distribution,
        "version": artifact.version,
        "state": artifact.state,
        "facts": facts,
        "bytes_read": artifact.bytes_read,
        "seconds": round(artifact.seconds, 2),
        "problem": artifact.problem,
    }
    if facts and artifact.python_tag:
        document["sha256"] = facts.pop("sha256")
    return document


def _raise_problems(result: "AuditResult", *, strict: bool) -> None:
    from imgbuild.maintain.reachability import AWAY

    unread = "\n".join(result.unread)
    if result.contradictions:
        count = count_text(len(result.contradictions), "contradiction")
        text = f"{count} between pins and artifacts; see above."
        raise CheckFailedError("\n".join(filter(None, [text, unread])))
    if unread:
        raise MachineError(f"no contradiction, but not everything could be read:\n{unread}")
    away = [item.name for item in result.inputs if item.state == AWAY]
    if strict and away:
        raise CheckFailedError(
            f"Not reachable from here, which --strict forbids: {', '.join(away)}."
        )
