"""``imgbuild audit``: compare the pins with the artifacts."""

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
#: The JSON fields of an input, in addition to its seconds.
_INPUT = ("name", "url", "sha256", "state", "detail", "bytes_read")
_HEADER = (
    "artifact", "version", "machine", "size", "state",
    "CUDA", "cuDNN", "compiler", "ABI", "glibc", "read", "s"
)  # fmt: skip


@takes_selection()
def audit(
    selection: Selection,
    offline: bool = flag("--offline", "Compare with images/evidence.json only, without network."),
    write: bool = flag(
        "--write", "Write the facts read from the artifacts to images/evidence.json."
    ),
    refresh: bool = flag("--refresh", "Read all artifacts again; reuse no recorded facts."),
    download: bool = flag("--download", "Also download the other inputs and verify their sha256."),
    strict: bool = flag("--strict", "Also exit 1 if an input cannot be reached."),
    as_json: bool = options.JSON,
    checkout: Project = options.PROJECT,
) -> None:
    """Compare the pins with wheels, source distributions and downloads.

    Example: imgbuild audit --write
    """
    from imgbuild.core.yaml_file import read_document
    from imgbuild.locks.lockfile import read_lock
    from imgbuild.maintain.audit import audit_offline, audit_online, list_artifacts, write_evidence
    from imgbuild.maintain.reachability import list_other_inputs
    from imgbuild.matrix.images import all_images, with_other_architectures

    if offline and (write or refresh or download or strict):
        raise InputError(
            "--offline cannot be combined with --write, --refresh, --download or --strict."
        )
    if write:
        options.require_own(checkout, "audit --write")
    # Without a selection all images are audited.
    images = with_other_architectures(select(checkout, selection.or_everything))
    matrix = images[0].matrix
    artifacts = list_artifacts(images)
    names = set[str]()
    for image in images:
        names.update(image.lock_names)
    locks = {}
    for name in sorted(names):
        path = checkout.locks / name
        if offline or path.exists():
            locks[name] = read_lock(path)
    if offline:
        result = audit_offline(artifacts, locks, matrix.evidence.facts)
    else:
        known = {} if refresh else matrix.evidence.facts
        sites = options.sites_of(checkout, matrix)
        inputs = list_other_inputs(images, checkout, sites)
        result = audit_online(artifacts, inputs, locks, sites, info, known=known, download=download)
    position = read_document(checkout.matrix).position
    document = _as_json(result, position)
    lines = _lines(result, position)
    print_result(document, lines, as_json=as_json)
    if write:
        needed = list_artifacts(with_other_architectures(all_images(matrix)))
        changed = write_evidence(checkout.evidence, result.facts, needed)
        state = "written" if changed else "unchanged"
        info(f"images/evidence.json: {state}.")
    _raise_problems(result, strict=strict)


def _lines(result: "AuditResult", position: "Callable[[Location], str]") -> list[str]:
    lines = align_rows([_HEADER, *map(_row, result.artifacts)])
    if result.inputs:
        rows = [("other input", "state", "")]
        rows += [(item.name, item.state, item.detail) for item in result.inputs]
        lines.append("")
        lines += align_rows(rows)
    if result.contradictions:
        lines.append("")
    for contradiction in result.contradictions:
        place = _place(contradiction.place, position)
        lines.append(f"✗ {place} ({contradiction.kind})")
        first, rest = contradiction.change[:1], contradiction.change[1:]
        text = f"{contradiction.subject}: {contradiction.evidence}. {first.upper()}{rest}."
        lines += textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    ")
    lines += ["", _summary(result)]
    return lines


def _summary(result: "AuditResult") -> str:
    """Return the last line, with the numbers of artifacts, contradictions and unchecked inputs."""
    count = sum(bool(artifact.python_tag) for artifact in result.artifacts)
    wheels = count_text(count, "wheel")
    sources = count_text(len(result.artifacts) - count, "source distribution")
    locks = count_text(result.locks["locks"], "lock")
    projects = result.locks["projects"]
    if projects:
        locks += f", {result.locks['hashes']} hashes of {projects} projects"
    contradictions = count_text(len(result.contradictions), "contradiction")
    if result.away:
        contradictions += f"; {count_text(len(result.away), 'input')} could not be reached"
    read = f"{result.bytes_read / 1e6:.1f} MB read in {result.seconds:.1f} s."
    return f"{wheels}, {sources}, {locks}: {contradictions}; {read}"


def _row(artifact: "Artifact") -> tuple[str, ...]:
    from imgbuild.matrix.evidence import MACHINES, WheelFacts

    facts = artifact.facts
    built = ("-",) * 5
    if isinstance(facts, WheelFacts):
        cuda = facts.version_of("cudart") or "-"
        cudnn = facts.version_of("cudnn") or "-"
        built = (cuda, cudnn, facts.compiler, str(facts.cxx11_abi), facts.glibc)
    size = f"{facts.size / 1e6:.1f} MB" if facts and facts.size else "-"
    read = ("-", "-")
    if artifact.bytes_read:
        read = (f"{artifact.bytes_read / 1e6:.1f} MB", f"{artifact.seconds:.1f}")
    machine = MACHINES[artifact.architecture] if artifact.python_tag else "-"
    return (artifact.distribution, artifact.version, machine, size, artifact.state, *built, *read)


def _place(place: "Location | str", position: "Callable[[Location], str]") -> str:
    """Return ``matrix.yaml:LINE:COLUMN KEYS``, or the path of a lock."""
    if isinstance(place, str):
        return place
    keys = ".".join(map(str, place))
    return f"{position(place)} {keys}"


def _as_json(result: "AuditResult", position: "Callable[[Location], str]") -> dict[str, Any]:
    """Return the result as JSON, with sizes in bytes and times in seconds."""
    contradictions = []
    for contradiction in result.contradictions:
        place = _place(contradiction.place, position)
        contradictions.append({**vars(contradiction), "place": place})
    wheels, sources = [], []
    for artifact in result.artifacts:
        facts = _artifact_json(artifact)
        if artifact.python_tag:
            wheels.append(facts)
        else:
            sources.append(facts)
    inputs = [_input_json(item) for item in result.inputs]
    return {
        "wheels": wheels,
        "sdists": sources,
        "locks": result.locks,
        "inputs": inputs,
        "contradictions": contradictions,
        "unread": result.unread,
        "bytes_read": result.bytes_read,
        "seconds": round(result.seconds, 2),
    }


def _input_json(item: "OtherInput") -> dict[str, Any]:
    document = {key: getattr(item, key) for key in _INPUT}
    document["seconds"] = round(item.seconds, 2)
    return document


def _artifact_json(artifact: "Artifact") -> dict[str, Any]:
    facts = None
    if artifact.facts:
        facts = artifact.facts.model_dump()
    document = {
        "distribution": artifact.distribution,
        "version": artifact.version,
        "architecture": artifact.architecture if artifact.python_tag else None,
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
    unread = "\n".join(result.unread)
    if result.contradictions:
        count = count_text(len(result.contradictions), "contradiction")
        text = f"{count} between pins and artifacts; see above."
        if unread:
            text += f"\n{unread}"
        raise CheckFailedError(text)
    if unread:
        raise MachineError(
            f"No contradiction was found, but some artifacts could not be read:\n{unread}"
        )
    if strict and result.away:
        raise CheckFailedError(
            "These inputs are not reachable from here, and --strict is set: "
            f"{', '.join(result.away)}."
        )
