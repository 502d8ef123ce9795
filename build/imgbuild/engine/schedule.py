"""When work will be done, by playing it forward: what is ready runs, and shares the processors."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """Some work, in seconds of a processor, that begins when others have ended.

    Of ``limited`` tasks only so many run at a time: suites, while all steps run side by side.
    """

    work: float
    after: frozenset[Hashable] = frozenset()
    limited: bool = False


def finish(tasks: Mapping[Hashable, Task], processors: int, at_a_time: int = 1) -> float:
    """Return in how many seconds all tasks are done. What waits for itself is left out."""
    left = {key: max(0.0, task.work) for key, task in tasks.items()}
    waits = {key: {one for one in task.after if one in tasks} for key, task in tasks.items()}
    after: dict[Hashable, list[Hashable]] = {}
    for key, others in waits.items():
        for other in others:
            after.setdefault(other, []).append(key)
    ready = [key for key, others in waits.items() if not others]
    now = 0.0
    while ready:
        running = _running(ready, tasks, at_a_time)
        share = min(1.0, processors / len(running))
        step = min(left[key] for key in running)
        now += step / share
        for key in running:
            left[key] -= step
        for key in [key for key in running if left[key] <= 0]:
            ready.remove(key)
            for other in after.get(key, ()):
                waits[other].discard(key)
                if not waits[other]:
                    ready.append(other)
    return now


def _running(
    ready: list[Hashable], tasks: Mapping[Hashable, Task], at_a_time: int
) -> list[Hashable]:
    free = [key for key in ready if not tasks[key].limited]
    return free + [key for key in ready if tasks[key].limited][: max(1, at_a_time)]
