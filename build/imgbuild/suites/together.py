"""Testing several images side by side."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from imgbuild.errors import ImgbuildError
from imgbuild.suites.examine import How
from imgbuild.suites.report import Found, Report
from imgbuild.suites.subject import Subject


@dataclass
class Outcomes:
    """What became of each image, in the order asked for: its report, why there is none, or nothing.

    ``not_begun`` are images that came after the first failure, where that ends the run.
    """

    reports: list[Report] = field(default_factory=list)
    errors: dict[str, ImgbuildError] = field(default_factory=dict)
    not_begun: list[str] = field(default_factory=list)


def examine_together(
    subjects: Sequence[Subject], examine: Callable[[Subject], Report], how: How, jobs: int
) -> Outcomes:
    """Return what became of all images, ``jobs`` of them at a time.

    An interrupt ends all of them: pytest removes what its suites started, then the container goes.
    """
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="imgbuild-test")
    futures = {pool.submit(examine, subject): subject for subject in subjects}
    try:
        _wait(futures, how)
        return _outcomes(futures)
    finally:
        for future in futures:
            future.cancel()
        if not all(future.done() for future in futures):
            how.stop.stop()
        pool.shutdown(wait=True)


def _wait(futures: dict[Future[Report], Subject], how: How) -> None:
    """Wait for all; begin no further image after a failure where the first one is enough."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        if how.fail_fast and any(_failed(future) for future in done if not future.cancelled()):
            pending = {future for future in pending if not future.cancel()}


def _failed(future: Future[Report]) -> bool:
    return future.exception() is not None or future.result().found is Found.FAILED


def _outcomes(futures: dict[Future[Report], Subject]) -> Outcomes:
    outcomes = Outcomes()
    for future, subject in futures.items():
        if future.cancelled():
            outcomes.not_begun.append(subject.name)
            continue
        error = future.exception()
        if isinstance(error, ImgbuildError):
            outcomes.errors[subject.name] = error
        else:
            outcomes.reports.append(future.result())
    return outcomes
