"""``imgbuild test``: run the suites in built images."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.build_command import skip_lines, suite_word
from imgbuild.cli.options import info, option, print_json, select, takes_selection
from imgbuild.errors import CheckFailedError, InputError
from imgbuild.matrix.selection import Selection
from imgbuild.text import aligned

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
        list[str] | None, option("--suite NAME", "Run only this suite; repeatable.")
    ] = None,
    list_suites: Annotated[bool, option("--list-suites", "List the suites; run none.")] = False,
    image: Annotated[
        str | None, option("--image REF", "Test this image of the engine, not the matrix's own.")
    ] = None,
    expect: Annotated[
        list[str] | None,
        option(
            "--expect KEY=VALUE,…",
            "The versions that an external --image must have: tf=2.2,horovod=0.19.5.",
        ),
    ] = None,
    jobs: options.JobsOption = options.JOBS,
    fail_fast: Annotated[bool, option("--fail-fast", "Stop at the first failed check.")] = False,
    rerun: Annotated[bool, option("--rerun", "Also run suites that passed before.")] = False,
    report: Annotated[
        Path | None,
        option("--report DIR", "Folder for report.json and summary.md, with one folder an image."),
    ] = None,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Run the test suites in built images; exit 1 if a check fails.

    A suite that passed is not run again until the image, its code or the expectation changes.
    """
    from imgbuild.suites.catalog import choose_suites, read_suites
    from imgbuild.suites.container import require_docker_client
    from imgbuild.suites.session import TestOptions

    opened = options.open_project(project)
    if list_suites:
        suites = read_suites(opened.suites)
        if as_json:
            print_json([one.as_json() for one in suites])
        else:
            typer.echo(suite_lines(suites))
        return
    test_options = TestOptions(tuple(suite or ()), rerun=rerun, fail_fast=fail_fast)
    reports = report and report.absolute()
    if expect and (image is None or selection != Selection()):
        raise InputError(
            "--expect describes an external image: give it with --image, and without --tf, --cpu, "
            "--gpu, --stack, --mpi, --all, --as-documented and --name."
        )
    images = () if expect else select(opened, selection)
    # The variant of an external image is read from the image.
    for variant in (one.variant for one in images) if images else (None,):
        choose_suites(opened.suites, test_options.suites, variant)
    if image is not None and not expect and len(images) != 1:
        raise InputError(f"--image names one image, but {len(images)} are selected.")
    require_docker_client()
    if expect and image is not None:
        run, folder = _test_external(opened, image, expect, test_options, reports)
    else:
        run, folder = _test_family(opened, images, image, test_options, jobs, reports)
    _print(run, folder, as_json=as_json)


def _test_family(
    project: "Project",
    images: "tuple[Image, ...]",
    reference: str | None,
    test_options: "TestOptions",
    jobs: int,
    reports: Path | None,
) -> "tuple[TestRun, Path]":
    """Test images of the matrix, or one image under another name against one of the matrix."""
    from imgbuild.build.context import BuildOptions, image_locks, open_context
    from imgbuild.build.gate import target_of, test_session
    from imgbuild.project import state_dir
    from imgbuild.suites.container import remove_leftovers
    from imgbuild.suites.session import run_targets

    build_options = BuildOptions(make_inputs=False, reports=reports)
    with open_context(project, images, build_options, info) as context:
        names = [image.name for image in images]
        with image_locks(names, context.host, state_dir() / "locks"), context.display:
            found = [(image, *_find(context, image, reference)) for image in images]
            remove_leftovers(names, context.engine)
            targets = [target_of(one, known, context, name) for one, known, name in found]
            session = test_session(context)
            run = run_targets(targets, session, test_options, jobs)
    return run, context.reports


def _test_external(
    project: "Project",
    reference: str,
    expect: list[str],
    test_options: "TestOptions",
    folder: Path | None,
) -> "tuple[TestRun, Path]":
    """Test one external image against ``--expect``."""
    from imgbuild.build.context import image_locks
    from imgbuild.build.display import BuildDisplay
    from imgbuild.engine.client import Engine
    from imgbuild.engine.discovery import resolve_host
    from imgbuild.matrix.load import load_matrix
    from imgbuild.project import state_dir
    from imgbuild.settings import load_settings
    from imgbuild.suites.container import TestTarget, remove_leftovers
    from imgbuild.suites.expectation import expected_of, parse_expect, unspecified
    from imgbuild.suites.image_probe import docker_exec, read_contents
    from imgbuild.suites.session import TestSession, run_targets
    from imgbuild.suites.store import ReportStore

    matrix = load_matrix(project.matrix)
    option = parse_expect(expect, matrix)
    host = resolve_host(load_settings(project.settings).engine)
    state = state_dir()
    reports = folder or state / "runs"
    with closing(Engine(host)) as engine:
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
            return run_targets([target], session, test_options, 1), reports


def _find(context: "BuildContext", image: "Image", reference: str | None) -> tuple[str, str]:
    """Return the id of the image to test, and the name that it was found under."""
    if reference is not None:
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
        print_json([report.as_json() for report in run.reports])
    else:
        typer.echo(report_lines(run.reports, run.not_begun))
        typer.echo(f"Summary: {folder / SUMMARY}")
    if len(run.errors) == 1 and not run.reports and not run.not_begun:
        raise next(iter(run.errors.values()))
    bad = [r for r in run.reports if r.verdict in {Verdict.FAILED, Verdict.SKIPPED}]
    lines = [failure_lines(report) for report in bad]
    lines += [f"{name}: {error}" for name, error in run.errors.items()]
    if lines:
        raise CheckFailedError("\n".join(lines))


def suite_lines(suites: "Sequence[Suite]") -> str:
    """Return the table of the suites: when each runs, in which images, what it needs and proves."""
    from imgbuild.suites.results import NEEDS_GPU

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
    from imgbuild.suites.results import left_out

    header = ("image", "suite", "result", "passed", "failed", "skipped", "seconds")
    lines = aligned([header, *(_row(one, suite) for one in reports for suite in one.suites)])
    for report in reports:
        lines += skip_lines(report)
        lines += [f"{report.image}: {why}: {', '.join(names)}" for names, why in left_out(report)]
    if any(suite.before for report in reports for suite in report.suites):
        lines.append(
            "Suites that passed before, in this image and with this code, were not run again "
            "(--rerun runs them)."
        )
    if not_begun:
        lines.append(f"Not started after the first failure: {', '.join(not_begun)}")
    return "\n".join(lines)


def failure_lines(report: "Report") -> str:
    """Return a line for each suite without a passed check, or with a failed one."""
    return "\n".join(
        f"{report.image}: {suite.suite}: {suite.problem}"
        for suite in report.suites
        if suite.failures or not suite.passed
    )


def _row(report: "Report", suite: "SuiteResult") -> tuple[str, ...]:
    return (
        report.image,
        suite.suite,
        f"{suite.verdict} before" if suite.before else suite_word(suite),
        str(suite.passed),
        str(len(suite.failures)),
        str(len(suite.skips)),
        "-" if suite.before else f"{suite.seconds:.1f}",
    )
