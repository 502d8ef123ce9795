"""The gate for several images side by side."""

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from imgbuild.building.gate import pass_gate
from imgbuild.building.outcome import Outcome
from imgbuild.building.workshop import Workshop
from imgbuild.plan.plan import PlanItem
from imgbuild.suites.examine import How


def pass_gates(
    built: Sequence[tuple[PlanItem, str]],
    workshop: Workshop,
    *,
    test: bool,
    keep_going: bool,
    jobs: int,
) -> list[Outcome]:
    """Return what became of the images that went through the gate, ``jobs`` of them at a time.

    ``built`` are plan items with their image ids. After a failure no further image begins, unless
    ``keep_going``. An interrupt ends all of them: pytest removes what its suites started, then the
    containers go, and what had no name has none.
    """
    how = How()
    waiting = list(built)
    running: dict[Future[Outcome], str] = {}
    done: dict[str, Outcome] = {}
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="imgbuild-gate")
    try:
        while waiting or running:
            # One that waits begins only when it is known that those before it passed.
            while waiting and len(running) < jobs:
                item, image_id = waiting.pop(0)
                begun = pool.submit(pass_gate, item, image_id, workshop, test=test, how=how)
                running[begun] = item.image.name
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                done[running.pop(future)] = outcome = future.result()
                if not outcome.ok and not keep_going:
                    waiting.clear()
        return [done[item.image.name] for item, _ in built if item.image.name in done]
    finally:
        if running:
            how.stop.stop()
        pool.shutdown(wait=True)
