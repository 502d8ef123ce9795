"""``imgbuild audit``: compare the pins with the artifacts themselves."""

from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.options import info, option, print_json, select, takes_selection
from imgbuild.errors import CheckFailedError, InputError, MachineError
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from imgbuild.audit.audit import AuditOutcome, OnlineAudit
    from imgbuild.audit.facts import Evidence
    from imgbuild.project import Project
    from imgbuild.settings import Settings, Sites


@takes_selection(without="as_documented")
def audit(
    selection: Selection,
    offline: Annotated[
        bool, option("--offline", "Compare with images/evidence.json only; use no network.")
    ] = False,
    write: Annotated[bool, option("--write", "Write the facts to images/evidence.json.")] = False,
    refresh: Annotated[bool, option("--refresh", "Read all wheels again.")] = False,
    download: Annotated[
        bool, option("--download", "Download the other inputs, to verify their sha256.")
    ] = False,
    strict: Annotated[
        bool, option("--strict", "Exit 1 also if an input cannot be reached.")
    ] = False,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Compare the pins with the wheels, source distributions and downloads."""
    from imgbuild.audit import tables
    from imgbuild.audit.audit import audit_offline
    from imgbuild.audit.facts import Evidence, load_evidence, pins_of
    from imgbuild.audit.reachability import other_inputs
    from imgbuild.settings import Sites, load_settings
    from imgbuild.yaml_file import read_document

    if offline and (write or refresh or download or strict):
        raise InputError(
            "--offline cannot be combined with --write, --refresh, --download or --strict."
        )
    opened = options.open_project(project)
    # Without a selection all images are audited.
    images = select(opened, selection.or_everything)
    pins = pins_of(images, opened.locks)
    if offline:
        outcome = audit_offline(pins, load_evidence(opened.evidence))
    else:
        is_known = opened.evidence.exists() and not refresh
        known = load_evidence(opened.evidence) if is_known else Evidence("")
        settings = load_settings(opened.settings)
        sites = Sites(images[0].matrix.upstream_urls, settings)
        others = other_inputs(images, opened, settings, sites)
        outcome = _online(settings, sites, known, download).run(pins, others)
    position = read_document(opened.matrix).position
    if as_json:
        print_json(tables.as_json(outcome, position))
    else:
        typer.echo(tables.as_text(outcome, position))
    if write:
        _write(opened, outcome)
    _conclude(outcome, strict=strict)


def _online(
    settings: "Settings", sites: "Sites", known: "Evidence", download: bool
) -> "OnlineAudit":
    from imgbuild.audit.audit import OnlineAudit
    from imgbuild.audit.package_index import find_index
    from imgbuild.http import HttpClient, RetryPolicy

    return OnlineAudit(
        client=HttpClient(sites.verify, policy=RetryPolicy(attempts=3)),
        # They may well be away.
        inputs=HttpClient(sites.verify, policy=RetryPolicy(attempts=1), seconds=(5.0, 10.0)),
        index=find_index(settings),
        sites=sites,
        known=known,
        download=download,
        log=info,
    )


def _write(opened: "Project", outcome: "AuditOutcome") -> None:
    from datetime import UTC, datetime

    from imgbuild.audit.facts import Evidence, pins_of, write_evidence
    from imgbuild.matrix.images import all_images
    from imgbuild.matrix.load import load_matrix

    every = pins_of(all_images(load_matrix(opened.matrix)), opened.locks)
    found = [one.facts for one in (*outcome.wheels, *outcome.sdists) if one.facts]
    new = Evidence(datetime.now(UTC).date().isoformat(), tuple(found))
    changed = write_evidence(opened.evidence, new, every.need)
    info(f"images/evidence.json: {'written' if changed else 'unchanged'}.")


def _conclude(outcome: "AuditOutcome", *, strict: bool) -> None:
    from imgbuild.audit.reachability import AWAY

    unread = "\n".join(outcome.unread)
    if outcome.contradictions:
        count = len(outcome.contradictions)
        text = f"{count} contradiction{'s' * (count > 1)} between pins and artifacts; see above."
        raise CheckFailedError("\n".join(filter(None, [text, unread])))
    if unread:
        raise MachineError(f"no contradiction, but not everything could be read:\n{unread}")
    away = [one.input.name for one in outcome.inputs if one.state == AWAY]
    if strict and away:
        raise CheckFailedError(
            f"Not reachable from here, which --strict forbids: {', '.join(away)}."
        )
