"""``imgbuild test``: run the suites in built images."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.options import info, select, takes_selection
from imgbuild.errors import CheckFailedError, InputError
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from imgbuild.build.context import BuildContext
    from imgbuild.engine.client import Engine
    from imgbuild.matrix.images import Image
    from imgbuild.project import Project
    from imgbuild.suites.catalog import Suite
    from imgbuild.suites.results import Report, SuiteResult
    from imgbuild.suites.session import TestOptions, TestRun


@takes_selection()
def test(
    selection: Selection,
    suite: Annotated[
        list[str] | None,
        typer.Option("--suite", metavar="NAME", help="Run only this suite; repeatable."),
    ] = None,
    list_suites: Annotated[
        bool, typer.Option("--list-suites", help="List the suites; run none.")
    ] = False,
    image: Annotated[
        str | None,
        typer.Option(
            "--image", metavar="REF", help="Test this image of the engine, not the matrix's own."
        ),
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            "--expect",
            metavar="KEY=VALUE,…",
            help="The versions that an external --image must have: tf=2.2,horovod=0.19.5.",
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option("--jobs", min=1, max=64, metavar="N", help="How many images to test at once."),
    ] = min(os.cpu_count() or 1, 4),
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Stop at the first failed check.")
    ] = False,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Also run suites that passed before.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="DIR",
            help="Folder for report.json and summary.md, with one folder an image.",
        ),
    ] = None,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Run the test suites in built images; exit 1 if a check fails.

    A suite that passed is not run again until the image, its code or the expectation changes.
    """
    from imgbuild.suites.container import require_docker_client
    from imgbuild.suites.session import TestOptions

    opened = options.open_project(project)
    if list_suites:
        _list(opened, as_json=as_json)
        return
    how = TestOptions(tuple(suite or ()), rerun=rerun, fail_fast=fail_fast)
    request = TestRequest(how, image, tuple(expect or ()), jobs, report and report.absolute())
    if expect and (not image or selection != Selection()):
        raise InputError(
            "--expect describes an external image: give it with --image, and without --tf, --cpu, "
            "--gpu, --stack, --mpi, --all, --as-documented and --name."
        )
    images = () if expect else select(opened, selection)
    request.check(opened, images)
    require_docker_client()
    run, folder = (
        _test_family(opened, images, request) if images else _test_external(opened, request)
    )
    _print(run, folder, as_json=as_json)


@dataclass(frozen=True)
class TestRequest:
    """The options of the command line, beside the selection of images."""

    options: "TestOptions"
    reference: str | None
    expect: tuple[str, ...]
    jobs: int
    report: Path | None

    def check(self, project: "Project", images: "Sequence[Image]") -> None:
        """Check the options before anything is opened.

        Raises:
            InputError: a suite does not exist, or one reference stands for several images.

        """
        from imgbuild.suites.catalog import choose_suites

        for image in images:
            choose_suites(project.suites, self.options.suites, image.variant)
        if self.reference and not self.expect and len(images) != 1:
            raise InputError(f"--image names one image, but {len(images)} are selected.")


def _test_family(
    project: "Project", images: "tuple[Image, ...]", request: TestRequest
) -> "tuple[TestRun, Path]":
    """Test images of the matrix, or one image under another name against one of the matrix."""
    from imgbuild.build.context import BuildOptions, image_locks, open_context
    from imgbuild.build.gate import remove_leftovers, target_of, test_session
    from imgbuild.project import state_dir
    from imgbuild.suites.session import run_targets

    build_options = BuildOptions(make_inputs=False, reports=request.report)
    with open_context(project, images, build_options, info) as context:
        names = [image.name for image in images]
        with image_locks(names, context.host, state_dir() / "locks"), context.display:
            found = [(image, *_find(context, image, request.reference)) for image in images]
            remove_leftovers(images, context)
            targets = [target_of(one, known, context, name) for one, known, name in found]
            session = test_session(context)
            run = run_targets(targets, session, request.options, request.jobs)
    return run, context.reports


def _test_external(project: "Project", request: TestRequest) -> "tuple[TestRun, Path]":
    """Test one external image against ``--expect``."""
    from imgbuild.build.context import image_locks
    from imgbuild.build.display import BuildDisplay
    from imgbuild.engine.client import Engine
    from imgbuild.engine.endpoint import resolve_host
    from imgbuild.matrix.load import load_matrix
    from imgbuild.project import state_dir
    from imgbuild.settings import load_settings
    from imgbuild.suites.container import TestTarget, remove_leftovers
    from imgbuild.suites.expect_option import expected_of, parse_expect, unspecified
    from imgbuild.suites.image_probe import docker_exec, read_contents
    from imgbuild.suites.session import TestSession, run_targets
    from imgbuild.suites.store import ReportStore

    matrix = load_matrix(project.matrix)
    option = parse_expect(request.expect, matrix)
    host = resolve_host(load_settings(project.settings).engine)
    engine, state = Engine(host), state_dir()
    reference, reports = request.reference or "", request.report or state / "runs"
    try:
        image_id = _must_have(engine, host, reference)
        target = TestTarget(reference, image_id, reference, "cpu", {})
        with (
            image_locks([target.folder], host, state / "locks"),
            BuildDisplay([reference]) as show,
        ):
            remove_leftovers([reference], engine)
            contents = read_contents(reference, image_id, engine, docker_exec(host))
            variant, expected = expected_of(option, reference, contents, matrix, project)
            rest = unspecified(expected, matrix, project)
            target = replace(target, variant=variant, expected=expected, unspecified=rest)
            store = ReportStore(state / "reports")
            session = TestSession(project, engine, host, store, reports, show.on_event)
            return run_targets([target], session, request.options, request.jobs), reports
    finally:
        engine.close()


def _find(context: "BuildContext", image: "Image", reference: str | None) -> tuple[str, str]:
    """Return the id of the image to test, and the name that it was found under."""
    if reference:
        return _must_have(context.engine, context.host, reference), reference
    name = context.own(image).tags[0]
    stored = context.engine.inspect(name)
    if stored is None:
        documented = " --as-documented --no-test" if image.documented else ""
        mpi = "" if image.usual_mpi else f" --mpi {image.mpi.flavour}"
        selection = f"--tf {image.minor} --{image.variant} --stack {image.stack}{mpi}{documented}"
        raise InputError(
            f"The engine has no image {name}. Build it first: imgbuild build {selection}"
        )
    return stored.id, name


def _must_have(engine: "Engine", host: str | None, reference: str) -> str:
    stored = engine.inspect(reference)
    if stored is None:
        client = f"docker -H {host}" if host else "docker"
        raise InputError(
            f"The engine at {host or 'its default'} has no image {reference}. imgbuild pulls no "
            f"image to test it; if a registry has it: {client} pull {reference}"
        )
    return stored.id


def _print(run: "TestRun", folder: Path, *, as_json: bool) -> None:
    """Write the files of the run and print its table.

    Raises:
        CheckFailedError: a check failed, or none was made.

    """
    from imgbuild.suites.results import Verdict
    from imgbuild.suites.session import SUMMARY

    run.write(folder)
    if as_json:
        typer.echo(json.dumps([report.as_json() for report in run.reports], indent=2))
    else:
        typer.echo(report_lines(run.reports, run.not_begun))
        typer.echo(f"Summary: {folder / SUMMARY}")
    if run.errors and not run.reports and not run.not_begun and len(run.errors) == 1:
        raise next(iter(run.errors.values()))
    bad = [r for r in run.reports if r.verdict in {Verdict.FAILED, Verdict.SKIPPED}]
    lines = [failure_lines(report) for report in bad]
    lines += [f"{name}: {error}" for name, error in run.errors.items()]
    if lines:
        raise CheckFailedError("\n".join(lines))


def _list(project: "Project", *, as_json: bool) -> None:
    from imgbuild.suites.catalog import read_suites

    suites = read_suites(project.suites)
    if as_json:
        typer.echo(json.dumps([suite.as_json() for suite in suites], indent=2))
    else:
        typer.echo(suite_lines(suites))


def suite_lines(suites: "Sequence[Suite]") -> str:
    """Return the table of the suites: when each runs, in which images, what it needs and proves."""
    from imgbuild.suites.results import NEEDS_GPU
    from imgbuild.text import aligned

    rows = [("suite", "runs", "images", "needs", "proves")]
    rows += [
        (
            suite.name,
            "on demand" if suite.on_demand else "always",
            "all" if len(suite.variants) > 1 else suite.variants[0],
            suite.needs or ("a GPU" if suite.name == NEEDS_GPU else "-"),
            suite.proves,
        )
        for suite in suites
    ]
    return "\n".join(aligned(rows))


def report_lines(reports: "Sequence[Report]", not_begun: Sequence[str] = ()) -> str:
    """Return the table of a test run, one line a suite, and why checks were not made."""
    from imgbuild.cli.build_command import skip_lines
    from imgbuild.text import aligned

    rows: list[tuple[str, ...]] = [
        ("image", "suite", "result", "passed", "failed", "skipped", "seconds")
    ]
    rows += [_row(report, suite) for report in reports for suite in report.suites]
    lines = [line for report in reports for line in [*skip_lines(report), *_left_out(report)]]
    if any(suite.before for report in reports for suite in report.suites):
        lines.append(
            "Suites that passed before, in this image and with this code, were not run again "
            "(--rerun runs them)."
        )
    if not_begun:
        lines.append(f"Not started after the first failure: {', '.join(not_begun)}")
    return "\n".join([*aligned(rows), *lines])


def failure_lines(report: "Report") -> str:
    """Return the failed checks of an image with their messages."""
    from imgbuild.build.gate import undone_of

    lines = [
        f"{report.image}: {suite.suite}: {failure.test}: {failure.message.strip()}"
        for suite in report.suites
        for failure in suite.failures
    ]
    empty = [
        f"{report.image}: {suite.suite}: {undone_of(suite)}"
        for suite in report.suites
        if not suite.passed and not suite.failures
    ]
    return "\n".join([*lines, *empty])


def _row(report: "Report", suite: "SuiteResult") -> tuple[str, ...]:
    from imgbuild.cli.build_command import suite_word

    return (
        report.image,
        suite.suite,
        f"{suite.verdict} before" if suite.before else suite_word(suite),
        str(suite.passed),
        str(len(suite.failures)),
        str(len(suite.skips)),
        "-" if suite.before else f"{suite.seconds:.1f}",
    )


def _left_out(report: "Report") -> list[str]:
    lines = []
    if report.unspecified:
        names = ", ".join(report.unspecified)
        lines.append(f"{report.image}: not checked, because --expect does not say: {names}")
    if report.not_begun:
        names = ", ".join(report.not_begun)
        lines.append(f"{report.image}: not started after the first failure: {names}")
    return lines
