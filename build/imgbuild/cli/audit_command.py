"""``imgbuild audit``: compare the pins with the artifacts themselves."""

from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.options import info, print_json, select, takes_selection
from imgbuild.errors import CheckFailedError, InputError, MachineError
from imgbuild.matrix.selection import Selection
from imgbuild.text import aligned

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from imgbuild.audit.audit import AuditOutcome
    from imgbuild.matrix.images import Image
    from imgbuild.project import Project


@takes_selection(without="as_documented")
def audit(
    selection: Selection,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Compare with images/evidence.json only; use no network."),
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write the facts to images/evidence.json.")
    ] = False,
    refresh: Annotated[bool, typer.Option("--refresh", help="Read all wheels again.")] = False,
    download: Annotated[
        bool,
        typer.Option("--download", help="Download the other inputs, to verify their sha256."),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 also if an input cannot be reached.")
    ] = False,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Compare the pins with the wheels, source distributions and downloads."""
    from imgbuild.audit.audit import audit_offline
    from imgbuild.audit.evidence import load_evidence
    from imgbuild.audit.needs import read_locks, sdist_needs, wheel_needs

    if offline and (write or refresh or download or strict):
        raise InputError(
            "--offline cannot be combined with --write, --refresh, --download or --strict."
        )
    opened = options.open_project(project)
    # Without a selection all images are audited.
    images = select(opened, selection.or_everything)
    if offline:
        locks = read_locks(images, opened.locks)
        evidence = load_evidence(_evidence(opened))
        outcome = audit_offline(wheel_needs(images), sdist_needs(images), locks, evidence)
    else:
        outcome = _online(opened, images, refresh, download)
    _print(opened, outcome, as_json)
    if write:
        _write(opened, outcome)
    _conclude(outcome, strict=strict)


def _evidence(opened: "Project") -> "Path":
    return opened.root / "images" / "evidence.json"


def _online(
    opened: "Project", images: "Sequence[Image]", refresh: bool, download: bool
) -> "AuditOutcome":
    from imgbuild.audit.audit import Network, audit_online
    from imgbuild.audit.evidence import Evidence, load_evidence
    from imgbuild.audit.needs import read_locks, sdist_needs, wheel_needs
    from imgbuild.audit.package_index import find_index
    from imgbuild.audit.reachability import other_inputs
    from imgbuild.http import HttpClient
    from imgbuild.retry import RetryPolicy
    from imgbuild.settings import load_settings
    from imgbuild.sites import make_sites

    settings = load_settings(opened.settings)
    sites = make_sites(images[0].matrix.upstream_urls, settings)
    known = Evidence("")
    if _evidence(opened).exists() and not refresh:
        known = load_evidence(_evidence(opened))
    return audit_online(
        Network(
            client=HttpClient(sites.verify, policy=RetryPolicy(attempts=3)),
            # They may well be away.
            inputs=HttpClient(sites.verify, policy=RetryPolicy(attempts=1), seconds=(5.0, 10.0)),
            index=find_index(settings),
            sites=sites,
            log=info,
        ),
        wheel_needs(images),
        sdist_needs(images),
        read_locks(images, opened.locks),
        other_inputs(images, opened, settings, sites),
        known,
        download=download,
    )


def _print(opened: "Project", outcome: "AuditOutcome", as_json: bool) -> None:
    from imgbuild.audit import tables
    from imgbuild.yaml_file import read_document

    position = read_document(opened.matrix).position
    if as_json:
        print_json(tables.as_json(outcome, position))
        return
    lines = aligned(tables.table(outcome))
    if outcome.inputs:
        lines += ["", *aligned(tables.input_rows(outcome.inputs))]
    if outcome.contradictions:
        lines += ["", *tables.contradiction_lines(outcome.contradictions, position)]
    typer.echo("\n".join([*lines, "", tables.summary(outcome)]))


def _write(opened: "Project", outcome: "AuditOutcome") -> None:
    from datetime import UTC, datetime

    from imgbuild.audit.evidence import Evidence, SdistFacts, WheelFacts, write_evidence
    from imgbuild.audit.needs import sdist_needs, wheel_needs
    from imgbuild.matrix.images import all_images
    from imgbuild.matrix.load import load_matrix

    images = all_images(load_matrix(opened.matrix))
    wheels, sdists = wheel_needs(images), {need.sha256 for need in sdist_needs(images)}

    def is_needed(facts: WheelFacts | SdistFacts) -> bool:
        if isinstance(facts, SdistFacts):
            return facts.sha256 in sdists
        return any(need.fits(facts.file) for need in wheels)

    found = [one.facts for one in (*outcome.wheels, *outcome.sdists)]
    new = Evidence(
        datetime.now(UTC).date().isoformat(),
        tuple(facts for facts in found if isinstance(facts, WheelFacts)),
        tuple(facts for facts in found if isinstance(facts, SdistFacts)),
    )
    changed = write_evidence(_evidence(opened), new, is_needed)
    typer.echo(f"images/evidence.json: {'written' if changed else 'unchanged'}.", err=True)


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
