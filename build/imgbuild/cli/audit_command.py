"""``imgbuild audit``: the pins against the artifacts themselves."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.options import select, takes_selection
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgbuild.audit.outcome import Outcome
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
        bool, typer.Option("--strict", help="Exit 1 if an input cannot be reached, too.")
    ] = False,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Compare the pins with the wheels, source distributions and downloads."""
    from imgbuild.errors import InputError

    if offline and (write or refresh or download or strict):
        raise InputError("--offline reads nothing; it goes with none of the other four.")
    opened = options.open_project(project)
    # Without a selection it is about everything: what is not looked at is not proved.
    images = select(opened, selection.or_everything)
    outcome = _offline(opened, images) if offline else _online(opened, images, refresh, download)
    _print(opened, outcome, as_json)
    if write:
        _write(opened, outcome)
    _conclude(outcome, strict=strict)


def _offline(opened: "Project", images: "Sequence[Image]") -> "Outcome":
    from imgbuild.audit.evidence import load_evidence
    from imgbuild.audit.needs import read_locks, sdist_needs, wheel_needs
    from imgbuild.audit.offline import audit_offline

    evidence = load_evidence(opened.root / "images" / "evidence.json")
    locks = read_locks(images, opened.locks)
    return audit_offline(wheel_needs(images), sdist_needs(images), locks, evidence)


def _online(
    opened: "Project", images: "Sequence[Image]", refresh: bool, download: bool
) -> "Outcome":
    from imgbuild.audit.client import INPUT_TIMEOUT, Client, choose_bundle
    from imgbuild.audit.evidence import Cache
    from imgbuild.audit.index_address import find_index, mirrored_index
    from imgbuild.audit.input_list import Surroundings, other_inputs
    from imgbuild.audit.needs import read_locks, sdist_needs, wheel_needs
    from imgbuild.audit.online import audit_online
    from imgbuild.audit.progress import shown
    from imgbuild.audit.sources import Sources
    from imgbuild.project import cache_dir
    from imgbuild.settings import load_settings
    from imgbuild.sites import make_sites

    settings = load_settings(opened.settings)
    bundle = choose_bundle(settings.ca_bundle)
    sites = make_sites(images[0].matrix.upstream_urls, settings)
    wheels, sdists = wheel_needs(images), sdist_needs(images)
    locks = read_locks(images, opened.locks)
    others = other_inputs(images, Surroundings(opened, settings, sites))
    with shown(len(wheels)) as progress:
        sources = Sources(
            client=Client(bundle),
            inputs=Client(bundle, INPUT_TIMEOUT, retries=0),
            index=mirrored_index(settings) or find_index(),
            cache=Cache(cache_dir() / "audit"),
            progress=progress,
            refresh=refresh,
            download=download,
        )
        return audit_online(sources, wheels, sdists, locks, others)


def _print(opened: "Project", outcome: "Outcome", as_json: bool) -> None:
    from imgbuild.audit import report
    from imgbuild.text import aligned
    from imgbuild.yaml_file import read_document

    position = read_document(opened.matrix).position
    if as_json:
        typer.echo(json.dumps(report.as_json(outcome, position), indent=2))
        return
    lines = aligned(report.table(outcome))
    if outcome.inputs:
        lines += ["", *aligned(report.input_rows(outcome.inputs))]
    if outcome.contradictions:
        lines += ["", *report.contradiction_lines(outcome.contradictions, position)]
    typer.echo("\n".join([*lines, "", report.summary(outcome)]))


def _write(opened: "Project", outcome: "Outcome") -> None:
    from datetime import UTC, datetime

    from imgbuild.audit.evidence import Evidence, write_evidence
    from imgbuild.audit.needs import sdist_needs, wheel_needs
    from imgbuild.matrix.images import all_images
    from imgbuild.matrix.load import load_matrix

    every = all_images(load_matrix(opened.matrix))
    new = Evidence(
        datetime.now(UTC).date().isoformat(),
        tuple(wheel.facts for wheel in outcome.wheels if wheel.facts),
        tuple(sdist.facts for sdist in outcome.sdists if sdist.facts),
    )
    path = opened.root / "images" / "evidence.json"
    changed = write_evidence(path, new, [*wheel_needs(every), *sdist_needs(every)])
    typer.echo(f"images/evidence.json: {'written' if changed else 'unchanged'}.", err=True)


def _conclude(outcome: "Outcome", *, strict: bool) -> None:
    from imgbuild.audit.failure import ReadError
    from imgbuild.errors import CheckFailedError

    unread = "\n".join(outcome.unread)
    if outcome.contradictions:
        count = len(outcome.contradictions)
        said = f"{count} contradiction{'s' * (count > 1)} between pins and artifacts; see above."
        raise CheckFailedError("\n".join(filter(None, [said, unread])))
    if unread:
        raise ReadError(f"no contradiction, but not everything could be read:\n{unread}")
    away = [one.input.name for one in outcome.inputs if one.state == "not reachable from here"]
    if strict and away:
        raise CheckFailedError(
            f"Not reachable from here, which --strict forbids: {', '.join(away)}."
        )
