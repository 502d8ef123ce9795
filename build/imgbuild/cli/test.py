"""``imgbuild test``: run the suites in images that are built already."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options

if TYPE_CHECKING:
    from imgbuild.building.workshop import Workshop
    from imgbuild.matrix.image import Image
    from imgbuild.suites.report import Report


def test(
    tf: options.TfOption = None,
    cpu: options.CpuOption = False,
    gpu: options.GpuOption = False,
    stack: options.StackOption = None,
    mpi: options.MpiOption = None,
    everything: options.AllOption = False,
    as_documented: options.AsDocumentedOption = False,
    suite: Annotated[
        list[str] | None, typer.Option("--suite", help="Run this suite only; repeatable.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", help="Test this image, by name or id, instead of the named one."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Folder for report.json and junit.xml, one folder an image."),
    ] = None,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Run the suites in images that are built already; exit 1 if one fails."""
    from imgbuild.building.image_lock import image_locks
    from imgbuild.building.opening import Opening, open_workshop
    from imgbuild.errors import InputError
    from imgbuild.project import state_dir
    from imgbuild.suites.code import choose_suites
    from imgbuild.suites.run import require_docker_client

    opened = options.open_project(project)
    images = options.select(opened, tf, cpu, gpu, stack, mpi, everything, as_documented)
    wanted = tuple(suite or ())
    for selected in images:
        choose_suites(opened.suites, wanted, selected.variant)
    if image and len(images) != 1:
        raise InputError(f"--image names one image, but {len(images)} are selected.")
    require_docker_client()
    opening = Opening(_say, report.absolute() if report else None, make=False)
    with open_workshop(opened, images, opening) as workshop:
        names = [selected.name for selected in images]
        with image_locks(names, workshop.host, state_dir() / "locks"), workshop.display:
            reports = _run(workshop, images, image, wanted)
    _print(reports, as_json=as_json)


def _run(
    workshop: "Workshop",
    images: "tuple[Image, ...]",
    reference: str | None,
    suites: tuple[str, ...],
) -> "list[Report]":
    from imgbuild.building.gate import examine, remove_leftovers

    found = [(image, _find(workshop, image, reference)) for image in images]
    remove_leftovers(images, workshop)
    return [examine(image, image_id, workshop, suites) for image, image_id in found]


def _find(workshop: "Workshop", image: "Image", reference: str | None) -> str:
    from imgbuild.errors import InputError

    wanted = reference or workshop.own(image).tags[0]
    stored = workshop.engine.inspect(wanted)
    if stored is None and reference:
        raise InputError(
            f"The engine at {workshop.host or 'its default'} has no image {reference}."
        )
    if stored is None:
        documented = " --as-documented --no-test" if image.documented else ""
        selection = f"--tf {image.minor} --{image.variant} --stack {image.stack}{documented}"
        raise InputError(
            f"The engine has no image {wanted}. Build it first: imgbuild build {selection}"
        )
    return stored.id


def _print(reports: "list[Report]", *, as_json: bool) -> None:
    from imgbuild.cli.build_tables import report_lines
    from imgbuild.errors import CheckFailedError
    from imgbuild.suites.report import Found

    if as_json:
        typer.echo(json.dumps([report.as_json() for report in reports], indent=2))
    else:
        typer.echo(report_lines(reports))
    failed = [report for report in reports if report.found in {Found.FAILED, Found.SKIPPED}]
    if failed:
        raise CheckFailedError("\n".join(_failure(report) for report in failed))


def _failure(report: "Report") -> str:
    from imgbuild.building.gate import undone_of

    lines = [
        f"{report.image}: {suite.suite}: {failure.test}: {failure.message.strip()}"
        for suite in report.suites
        for failure in suite.failures
    ]
    empty = [
        f"{report.image}: {s.suite}: {undone_of(s)}"
        for s in report.suites
        if not s.passed and not s.failures
    ]
    return "\n".join([*lines, *empty])


def _say(text: str) -> None:
    typer.echo(text, err=True)
