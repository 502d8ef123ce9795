"""The gate for several images side by side."""

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from imgbuild.build.blame import Blame, blame_of
from imgbuild.build.gate import pass_gate
from imgbuild.build.outcome import Outcome
from imgbuild.build.workshop import Workshop
from imgbuild.errors import ImgbuildError
from imgbuild.plan.plan import PlanItem
from imgbuild.suites.session import TestOptions


def pass_gates(
    built: Sequence[tuple[PlanItem, str]],
    workshop: Workshop,
    *,
    test: bool,
    keep_going: bool,
    jobs: int,
) -> Iterator[Outcome]:
    """Yield what became of each image that went through the gate, ``jobs`` of them at a time.

    ``built`` are plan items with their image ids. After a failure no further image begins, unless
    ``keep_going``; where nothing can be done for any image, none does. An interrupt ends all of
    them: pytest removes what its suites started, then the containers go, and what had no name has
    none.
    """
    how = TestOptions()
    waiting = list(built)
    running: set[Future[Outcome]] = set()
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="imgbuild-gate")
    try:
        while waiting or running:
            # One that waits begins only when it is known that those before it passed.
            while waiting and len(running) < jobs:
                item, image_id = waiting.pop(0)
                begun = pool.submit(_outcome, item, image_id, workshop, test=test, how=how)
                running.add(begun)
            done, running = wait(running, return_when=FIRST_COMPLETED)
            outcomes = [future.result() for future in done]
            if any(ends_work(outcome, keep_going=keep_going) for outcome in outcomes):
                waiting.clear()
            yield from outcomes
    finally:
        if running:
            how.stop.stop()
        pool.shutdown(wait=True)


def ends_work(outcome: Outcome, *, keep_going: bool) -> bool:
    """Return whether no further image begins after this outcome."""
    return not outcome.ok and (not keep_going or outcome.blame is Blame.ALL)


def _outcome(
    item: PlanItem, image_id: str, workshop: Workshop, *, test: bool, how: TestOptions
) -> Outcome:
    """Return what became of an image; an error on the way is its own, not the whole build's."""
    try:
        return pass_gate(item, image_id, workshop, test=test, how=how)
    except ImgbuildError as error:
        return Outcome(item, image_id, error=str(error), blame=blame_of(error))
