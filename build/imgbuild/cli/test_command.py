"""``imgbuild test``: run the suites in built images."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.cli import options
from imgbuild.cli.options import flag, info, option, print_result, select, takes_selection
from imgbuild.core.errors import CheckFailedError, ImgbuildError, InputError
from imgbuild.core.project import Project
from imgbuild.core.text import align_rows
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from imgbuild.build.context import BuildContext
    from imgbuild.matrix.images import Image
    from imgbuild.suites.catalog import Suite
    from imgbuild.suites.container import TestTarget
    from imgbuild.suites.results import Report


@takes_selection()
def test(
    selection: Selection,
    suite: list[str] | None = option("--suite NAME", "Run only this suite; repeatable."),
    list_suites: bool = flag("--list-suites", "List the suites; run none."),
    jobs: int = options.JOBS,
    fail_fast: bool = flag("--fail-fast", "Stop at the first failed check."),
    refresh: bool = flag("--refresh", "Also run suites that passed before."),
    platform: str | None = options.PLATFORM,
    require_gpu: bool = flag("--require-gpu", "Fail unless GPU images were tested on a GPU."),
    report: Path | None = option(
        "--report DIR",
        "Folder for report.json, summary.md and a subfolder per image.",
        file_okay=False,
    ),
    as_json: bool = options.JSON,
    checkout: Project = options.PROJECT,
) -> None:
    """Run the suites in built images; exit 1 if a check fails.

    A suite that passed runs again only after the image, the suite's code or the expected facts
    changed. An IMAGE outside the matrix must equal an image of the matrix: the image that its label
    names, or the image that --tf and the other selection options select.

    Example: imgbuild test 2.2 --suite horovod
    """
    from imgbuild.build.context import BuildOptions, open_context
    from imgbuild.suites.catalog import choose_suites, read_suites
    from imgbuild.suites.container import remove_leftovers, require_docker_client
    from imgbuild.suites.expectation import known_facts
    from imgbuild.suites.session import SUMMARY, run_targets

    if list_suites:
        suites = read_suites(checkout.suites)
        print_result([suite.as_json() for suite in suites], suite_lines(suites), as_json=as_json)
        return
    suite_names = tuple(suite or ())
    row, others = options.split_names(checkout, selection)
    if len(others) > 1 or (others and row.names):
        raise InputError(
            f"Test each image outside the matrix in a separate command: {', '.join(others)}."
        )
    image = others[0] if others else None
    if image is not None and row == Selection():
        images = _images_by_label(checkout, image)
    else:
        images = select(checkout, row)
    for selected in images:
        choose_suites(checkout.suites, suite_names, known_facts(selected))
    if image is not None and platform:
        raise InputError(
            "--platform selects images of the matrix. An IMAGE outside the matrix has its own."
        )
    if image is not None and len(images) != 1:
        raise InputError(f"{image} must equal one image, but {len(images)} are selected.")
    require_docker_client()
    if image is None:
        images = options.for_platform(
            images, platform, checkout.settings, everything=row.everything
        )
    build_options = BuildOptions(reports=report and report.absolute())
    with (
        open_context(checkout, images, build_options, info, lock=True) as context,
        context.display,
    ):
        targets = [expected_target(selected, context, image) for selected in context.images]
        remove_leftovers([target.name for target in targets], context.engine)
        session = replace(
            context.test_session, suites=suite_names, rerun=refresh, fail_fast=fail_fast
        )
        reports, errors, not_begun = run_targets(targets, session, jobs)
    lines = (report_lines(reports, not_begun), f"Summary: {session.reports / SUMMARY}")
    print_result([report.as_json() for report in reports], lines, as_json=as_json)
    raise_failures(reports, errors, not_begun, require_gpu=require_gpu)


def _images_by_label(project: Project, reference: str) -> "tuple[Image, ...]":
    """Return the image of the matrix that an image's label names; an extension has its base's."""
    from imgbuild.dockerfile.labels import NAME
    from imgbuild.engine.client import open_engine

    with open_engine(project.settings.engine) as engine:
        options.pull_missing(engine, reference, project.settings)
        name = engine.need(reference).labels.get(NAME, "")
    try:
        return select(project, Selection(names=(name,)))
    except InputError:
        raise InputError(
            f"{reference}: its label {NAME} is {name!r}, which is not an image of the matrix. "
            "Select the image that it must equal with --tf VERSION and the other selection options."
        ) from None


def expected_target(
    image: "Image", context: "BuildContext", reference: str | None = None
) -> "TestTarget":
    """Return the test target for an image of the matrix, or for the derived image ``reference``.

    InputError: the engine does not have the image. Without ``reference``, also if this machine did
        not build or pull it.
    """
    from imgbuild.build.gate import suite_target
    from imgbuild.dockerfile.labels import added_packages

    stored = context.engine.need(reference) if reference else context.need_own(image)
    target = suite_target(image, stored.id, context, reference)
    packages = {**target.expected["packages"], **added_packages(stored.labels)}
    expected = {**target.expected, "packages": packages}
    if recorded := context.store.extension(stored.id):  # expect the same as `imgbuild extend`
        expected["requested"] = recorded.expected.get("requested", {})
    return replace(target, expected=expected)


def raise_failures(
    reports: "Sequence[Report]",
    errors: Mapping[str, ImgbuildError],
    not_begun: Sequence[str],
    *,
    require_gpu: bool,
) -> None:
    """Raise CheckFailedError if a suite failed or timed out, none passed, or an error occurred.

    If there is only one error and no report, raise the error itself.
    """
    from imgbuild.core.outcome import Outcome
    from imgbuild.suites.results import NEEDS_GPU, RUN_AGAIN

    if len(errors) == 1 and not reports and not not_begun:
        raise next(iter(errors.values()))
    bad = []
    for report in reports:
        failed = report.verdict in {Outcome.FAILED, Outcome.TIMED_OUT, Outcome.SKIPPED}
        if failed or (require_gpu and report.lacks_gpu):
            bad.append(report)
    lines = []
    for report in bad:
        lines += failure_lines(report)
    if bad and all(report.verdict is Outcome.TIMED_OUT for report in bad):
        lines.append(f"{RUN_AGAIN}.")
    lines += [f"{name}: {error}" for name, error in errors.items()]
    if require_gpu and not lines and not _ran_on_gpu(reports):
        what = "Select this suite and GPU images, and add --refresh."
        lines = [f"--require-gpu: the suite {NEEDS_GPU} did not run on this machine. {what}"]
    if lines:
        raise CheckFailedError("\n".join(lines))


def _ran_on_gpu(reports: "Iterable[Report]") -> bool:
    """Return whether the suite that needs a GPU ran, and all its results are from this machine."""
    from imgbuild.suites.results import NEEDS_GPU

    results = []
    for report in reports:
        results += [result for result in report.suites if result.suite == NEEDS_GPU]
    return bool(results) and not any(result.found for result in results)


def failure_lines(report: "Report") -> list[str]:
    """Return a line for each suite that failed, timed out or has no passed check."""
    bad = [
        result
        for result in report.suites
        if result.failures or result.timed_out or not result.passed
    ]
    return [f"{report.image}: {result.suite}: {result.problem}" for result in bad]


def suite_lines(suites: "Iterable[Suite]") -> list[str]:
    """Return the table of the suites."""
    from imgbuild.suites.results import NEEDS_GPU

    rows = [("suite", "runs", "images", "needs", "proves")]
    for suite in suites:
        runs = "on demand" if suite.on_demand else "always"
        images = "all" if len(suite.variants) > 1 else suite.variants[0]
        needs = suite.needs or ("a GPU" if suite.name == NEEDS_GPU else "-")
        rows.append((suite.name, runs, images, needs, suite.proves))
    return align_rows(rows)


def report_lines(reports: "Sequence[Report]", not_begun: Sequence[str] = ()) -> str:
    """Return the table of a test run with one line per suite, and notes on skipped suites."""
    header = ("image", "suite", "result", "passed", "failed", "skipped", "seconds")
    rows: list[tuple[str, ...]] = [header]
    notes: list[str] = []
    has_earlier = False
    for report in reports:
        notes += [f"{report.image}: {note}" for note in report.notes]
        for result in report.suites:
            counts = (result.passed, len(result.failures), len(result.skipped))
            verdict, seconds = result.word, f"{result.seconds:.1f}"
            if result.before:
                verdict, seconds = f"{result.verdict} before", "-"
                has_earlier = True
            rows.append((report.image, result.suite, verdict, *map(str, counts), seconds))
    lines = [*align_rows(rows), *notes]
    if has_earlier:
        lines.append(
            "Suites that already passed in this image with the same code were not run again. Use "
            "--refresh to run them."
        )
    if not_begun:
        lines.append(f"Not started after the first failure: {', '.join(not_begun)}")
    return "\n".join(lines)
