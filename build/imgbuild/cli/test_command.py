"""``imgbuild test``: run the suites in built images."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.cli import options
from imgbuild.cli.options import flag, info, option, print_result, select, takes_selection
from imgbuild.errors import CheckFailedError, InputError
from imgbuild.matrix.selection import Selection
from imgbuild.project import Project
from imgbuild.text import align_rows

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image
    from imgbuild.suites.catalog import Suite
    from imgbuild.suites.results import Report
    from imgbuild.suites.runner import TestOptions
    from imgbuild.suites.session import TestRun


@takes_selection()
def test(
    selection: Selection,
    suite: list[str] | None = option("--suite NAME", "Run only this suite; repeatable."),
    list_suites: bool = flag("--list-suites", "List the suites; run none."),
    image: str | None = option(
        "--image IMAGE",
        "Test this image of the engine. Its label names the image of the matrix that it must "
        "equal, or --tf and --name do.",
    ),
    jobs: int = options.JOBS,
    fail_fast: bool = flag("--fail-fast", "Stop at the first failed check."),
    rerun: bool = flag("--rerun", "Also run suites that passed before."),
    require_gpu: bool = flag("--require-gpu", "Fail if an image for GPUs could not use a GPU."),
    report: Path | None = option(
        "--report DIR",
        "Folder for report.json, summary.md and one folder per image.",
        file_okay=False,
    ),
    as_json: bool = options.JSON,
    checkout: Project = options.PROJECT,
) -> None:
    """Run the test suites in built images; exit 1 if a check fails.

    A suite that passed is not run again until the image, its code or the expectation changes.
    """
    from imgbuild.suites.catalog import choose_suites, read_suites
    from imgbuild.suites.container import require_docker_client
    from imgbuild.suites.expectation import known_facts
    from imgbuild.suites.runner import TestOptions

    if list_suites:
        suites = read_suites(checkout.suites)
        print_result([one.as_json() for one in suites], suite_lines(suites), as_json=as_json)
        return
    test_options = TestOptions(tuple(suite or ()), rerun=rerun, fail_fast=fail_fast)
    reports = report and report.absolute()
    if image is not None and selection == Selection():
        images = _labelled(checkout, image)
    else:
        images = select(checkout, selection)
    for facts in map(known_facts, images):
        choose_suites(checkout.suites, test_options.suites, facts)
    if image is not None and len(images) != 1:
        raise InputError(f"--image names one image, but {len(images)} are selected.")
    require_docker_client()
    run = _test_family(checkout, images, image, test_options, jobs, reports)
    lines = (report_lines(run.reports, run.not_begun), f"Summary: {run.summary}")
    print_result([report.as_json() for report in run.reports], lines, as_json=as_json)
    raise_failures(run, require_gpu=require_gpu)


def _labelled(project: Project, reference: str) -> "tuple[Image, ...]":
    """Return the image of the matrix that the label of an image, or of its base, names."""
    from imgbuild.dockerfile.labels import NAME
    from imgbuild.engine.client import open_engine

    with open_engine(project.settings.engine) as engine:
        name = engine.need(reference).labels.get(NAME, "")
    try:
        return select(project, Selection(names=(name,)))
    except InputError:
        raise InputError(
            f"--image {reference}: its label {NAME}, {name!r}, names no image of the matrix. Say "
            "which one it must equal: --tf or --name."
        ) from None


def _test_family(
    project: Project,
    images: "tuple[Image, ...]",
    reference: str | None,
    test_options: "TestOptions",
    jobs: int,
    reports: Path | None,
) -> "TestRun":
    """Test images of the matrix; or one image under another name, or derived from one of them."""
    from imgbuild.build.context import BuildOptions, open_context
    from imgbuild.build.gate import suite_target
    from imgbuild.dockerfile.labels import added_packages
    from imgbuild.suites.container import remove_leftovers
    from imgbuild.suites.session import run_targets

    build_options = BuildOptions(reports=reports)
    names = [image.name for image in images]
    with (
        open_context(project, images, build_options, info, lock=True) as context,
        context.display,
    ):
        targets = []
        for image in context.images:
            stored = context.engine.need(reference) if reference else context.need_own(image)
            target = suite_target(image, stored.id, context, reference)
            packages = {**target.expected["packages"], **added_packages(stored.labels)}
            expected = {**target.expected, "packages": packages}
            if recorded := context.store.extension(stored.id):  # as `imgbuild extend` tested it
                expected["requested"] = recorded.expected.get("requested", {})
            targets.append(replace(target, expected=expected))
        remove_leftovers(names, context.engine)
        return run_targets(targets, context.test_session, test_options, jobs)


def raise_failures(run: "TestRun", *, require_gpu: bool) -> None:
    """Raise `CheckFailedError` if a check failed, none was made, or an image was not tested."""
    from imgbuild.suites.results import NEEDS_GPU, RUN_AGAIN, Verdict

    if len(run.errors) == 1 and not run.reports and not run.not_begun:
        raise next(iter(run.errors.values()))
    bad = [
        one
        for one in run.reports
        if one.verdict in {Verdict.FAILED, Verdict.TIMED_OUT, Verdict.SKIPPED}
        or (require_gpu and one.lacks_gpu)
    ]
    lines = [line for report in bad for line in failure_lines(report)]
    if bad and all(one.verdict is Verdict.TIMED_OUT for one in bad):
        lines.append(f"{RUN_AGAIN}.")
    lines += [f"{name}: {error}" for name, error in run.errors.items()]
    on_gpus = [suite for one in run.reports for suite in one.suites if suite.suite == NEEDS_GPU]
    if require_gpu and not lines and (not on_gpus or any(suite.found for suite in on_gpus)):
        what = "select this suite and images for GPUs, and add --rerun"
        lines = [f"--require-gpu: suite {NEEDS_GPU} did not run here: {what}"]
    if lines:
        raise CheckFailedError("\n".join(lines))


def failure_lines(report: "Report") -> list[str]:
    """Return a line for each suite with a failed or late check, or without a passed one."""
    bad = [one for one in report.suites if one.failures or one.timed_out or not one.passed]
    return [f"{report.image}: {suite.suite}: {suite.problem}" for suite in bad]


def suite_lines(suites: "Iterable[Suite]") -> list[str]:
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
    return align_rows(rows)


def report_lines(reports: "Sequence[Report]", not_begun: Sequence[str] = ()) -> str:
    """Return the table of a test run, one line a suite, and why checks were not made."""
    found = [(report.image, suite) for report in reports for suite in report.suites]
    header = ("image", "suite", "result", "passed", "failed", "skipped", "seconds")
    rows = [
        (
            image,
            suite.suite,
            f"{suite.verdict} before" if suite.before else suite.word,
            *(str(number) for number in (suite.passed, len(suite.failures), len(suite.skips))),
            "-" if suite.before else f"{suite.seconds:.1f}",
        )
        for image, suite in found
    ]
    lines = align_rows([header, *rows])
    lines += [f"{report.image}: {note}" for report in reports for note in report.notes]
    if any(suite.before for _, suite in found):
        lines.append(
            "Suites that passed before, in this image and with this code, were not run again "
            "(--rerun runs them)."
        )
    if not_begun:
        lines.append(f"Not started after the first failure: {', '.join(not_begun)}")
    return "\n".join(lines)
