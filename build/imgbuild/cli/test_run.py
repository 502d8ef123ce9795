"""The test runs behind ``imgbuild test``: of the matrix's images, and of one from elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from imgbuild.build.gate import examiner, remove_leftovers, subject_of
from imgbuild.build.image_lock import image_locks
from imgbuild.build.opening import Opening, open_workshop
from imgbuild.build.workshop import Workshop
from imgbuild.cli.telling import say
from imgbuild.cli.test_tables import failure_lines, report_json, report_lines
from imgbuild.engine.client import Engine
from imgbuild.engine.display import BuildDisplay
from imgbuild.engine.endpoint import resolve_host
from imgbuild.errors import CheckFailedError, InputError
from imgbuild.matrix.images import Image
from imgbuild.matrix.load import load_matrix
from imgbuild.project import Project, state_dir
from imgbuild.settings import load_settings
from imgbuild.suites import container
from imgbuild.suites.asking import ask_image
from imgbuild.suites.code import choose_suites
from imgbuild.suites.examine import Examiner, How
from imgbuild.suites.files import SUMMARY, write_run
from imgbuild.suites.given import expected_of, not_given, parse_given
from imgbuild.suites.report import Found
from imgbuild.suites.store import ReportStore
from imgbuild.suites.subject import Subject
from imgbuild.suites.together import Outcomes, examine_together


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for, beside which images of the matrix."""

    how: How
    reference: str | None = None
    expect: tuple[str, ...] = ()
    jobs: int = 1
    report: Path | None = None
    as_json: bool = False

    def check(self, project: Project, images: Sequence[Image]) -> None:
        """Refuse what cannot be meant, before anything is opened.

        Raises:
            InputError: a suite does not exist, or one reference stands for several images.

        """
        for image in images:
            choose_suites(project.suites, self.how.suites, image.variant)
        if self.reference and len(images) != 1:
            raise InputError(f"--image names one image, but {len(images)} are selected.")


def test_family(project: Project, images: tuple[Image, ...], wanted: Wanted) -> None:
    """Test images of the matrix, or one of another name that must be as one of them.

    Raises:
        CheckFailedError: a check failed, or none was made.

    """
    opening = Opening(say, wanted.report, make=False)
    with open_workshop(project, images, opening) as workshop:
        names = [image.name for image in images]
        with image_locks(names, workshop.host, state_dir() / "locks"), workshop.display:
            found = [(image, *_find(workshop, image, wanted.reference)) for image in images]
            remove_leftovers(images, workshop)
            subjects = [subject_of(one, known, workshop, name) for one, known, name in found]
            outcomes = _together(examiner(workshop), subjects, wanted)
    _tell(outcomes, subjects, workshop.reports, wanted)


def test_elsewhere(project: Project, wanted: Wanted) -> None:
    """Test one image against what was given with ``--expect``.

    Raises:
        CheckFailedError: a check failed, or none was made.

    """
    matrix = load_matrix(project.matrix)
    given = parse_given(wanted.expect, matrix)
    host = resolve_host(load_settings(project.settings).engine)
    engine = Engine(host)
    try:
        reference = wanted.reference or ""
        image_id = _must_have(engine, host, reference)
        subject = Subject(reference, image_id, reference, "cpu", {})
        state = state_dir()
        with (
            image_locks([subject.folder], host, state / "locks"),
            BuildDisplay([reference]) as show,
        ):
            variant, expected = expected_of(
                given, reference, lambda: ask_image(image_id, host), matrix, project
            )
            left_out = not_given(expected, matrix, project)
            subject = replace(subject, variant=variant, expected=expected, not_given=left_out)
            container.remove_leftovers([reference], engine)
            reports = wanted.report or state / "runs"
            store = ReportStore(state / "reports")
            one = Examiner(project, engine, host, store, reports, show)
            outcomes = _together(one, [subject], wanted)
    finally:
        engine.close()
    _tell(outcomes, [subject], reports, wanted)


def _together(one: Examiner, subjects: Sequence[Subject], wanted: Wanted) -> Outcomes:
    return examine_together(
        subjects, lambda subject: one.examine(subject, wanted.how), wanted.how, wanted.jobs
    )


def _find(workshop: Workshop, image: Image, reference: str | None) -> tuple[str, str]:
    """Return the id of the image to test, and the name that it was found under."""
    if reference:
        return _must_have(workshop.engine, workshop.host, reference), reference
    wanted = workshop.own(image).tags[0]
    stored = workshop.engine.inspect(wanted)
    if stored is None:
        documented = " --as-documented --no-test" if image.documented else ""
        mpi = "" if image.usual_mpi else f" --mpi {image.mpi.flavour}"
        selection = f"--tf {image.minor} --{image.variant} --stack {image.stack}{mpi}{documented}"
        raise InputError(
            f"The engine has no image {wanted}. Build it first: imgbuild build {selection}"
        )
    return stored.id, wanted


def _must_have(engine: Engine, host: str | None, reference: str) -> str:
    stored = engine.inspect(reference)
    if stored is None:
        client = f"docker -H {host}" if host else "docker"
        raise InputError(
            f"The engine at {host or 'its default'} has no image {reference}. imgbuild tests what "
            f"is there; if a registry has it: {client} pull {reference}"
        )
    return stored.id


def _tell(outcomes: Outcomes, subjects: Sequence[Subject], folder: Path, wanted: Wanted) -> None:
    """Write the files of the run, print its table, and fail if a check failed."""
    folders = {subject.name: folder / subject.folder for subject in subjects}
    errors = {name: str(error) for name, error in outcomes.errors.items()}
    write_run([(one, folders[one.image]) for one in outcomes.reports], errors, folder)
    if wanted.as_json:
        typer.echo(report_json(outcomes.reports))
    else:
        typer.echo(report_lines(outcomes.reports, outcomes.not_begun))
        typer.echo(f"Summary: {folder / SUMMARY}")
    bad = [r for r in outcomes.reports if r.found in {Found.FAILED, Found.SKIPPED}]
    lines = [failure_lines(report) for report in bad]
    lines += [f"{name}: {text}" for name, text in errors.items()]
    if len(outcomes.errors) == len(subjects) == 1:
        raise next(iter(outcomes.errors.values()))
    if lines:
        raise CheckFailedError("\n".join(lines))
