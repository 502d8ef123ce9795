"""Divide images between runners or builders: the longest first, shared stages together."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.files import sha256
from imgbuild.matrix.images import Image, minor_of
from imgbuild.project import Project

#: Seconds of one image on two cores with nothing kept, and the stages that cost most beside
#: Horovod. Source: docs/evidence.md, "CUDA of the package index" and "A farm".
BASIC, SUITES, TENSORFLOW, CUDA = 29, 45, 27, 76
#: Of compiling Horovod, by its minor version. Source: as above; of newer ones nobody knows.
HOROVOD = {"0.15": 16, "0.16": 46, "0.18": 51, "0.19": 84, "0.20": 80}
HOROVOD_NEWER, HOROVOD_GPU = 80, 121
#: The stages that images share, the most expensive first; an image's group is the first it has.
SHARED_STAGES = {"packages-cuda": CUDA, "cuda": CUDA, "packages-tensorflow": TENSORFLOW}
#: By so much the limit of a division grows until the images fit.
STEP = 1.01


@dataclass(frozen=True)
class Work:
    """The work for one image, in seconds if it is built alone, on a runner with nothing kept.

    The images of a ``group`` that are built together do ``shared`` of these seconds only once.
    """

    name: str
    seconds: float
    group: str = ""
    shared: float = 0.0


def estimated_works(
    images: Iterable[Image], project: Project, earlier: Mapping[str, float]
) -> list[Work]:
    """Return the work for each image; ``earlier`` are the seconds of earlier builds, by name.

    An image without any gets an estimate, in the scale of the others.
    """
    works = [_estimate(image, project) for image in images]
    known = [work for work in works if earlier.get(work.name)]
    measured = sum(earlier[work.name] for work in known)
    scale = measured / sum(work.seconds for work in known) if known else 1.0
    return [
        replace(work, seconds=max(seconds, shared), shared=shared)
        for work in works
        for shared in [work.shared * scale]
        for seconds in [earlier.get(work.name) or work.seconds * scale]
    ]


def _estimate(image: Image, project: Project) -> Work:
    stages = render_dockerfile(image, project.templates).stages
    horovod = HOROVOD.get(minor_of(image.version_of("horovod")), HOROVOD_NEWER)
    if image.variant == "gpu":
        horovod = HOROVOD_GPU + CUDA
    seconds = BASIC + TENSORFLOW + horovod + SUITES
    stage = next((name for name in SHARED_STAGES if name in stages), None)
    if stage is None:
        return Work(image.name, seconds, image.name)
    text = f"{image.version_of('python')}\n{stages[stage].text}"
    return Work(image.name, seconds, sha256(text.encode()), SHARED_STAGES[stage])


def seconds_of(works: Iterable[Work]) -> float:
    """Return how long one runner is busy, with what its images share done once."""
    own, shared = 0.0, defaultdict[str, float](float)
    for work in works:
        own += work.seconds - work.shared
        shared[work.group] = max(shared[work.group], work.shared)
    return own + sum(shared.values())


def lower_bound(works: Sequence[Work], count: int) -> float:
    """Return the seconds that no division between ``count`` runners can beat."""
    return max([seconds_of(works) / count, *(work.seconds for work in works)])


def divide(works: Iterable[Work], count: int) -> list[list[Work]]:
    """Return what each of ``count`` runners has to build; each work is in one of the lists.

    The longest come first. Each goes to the runner where it takes least, since its group is there,
    and of these to the least busy; none may be busy for longer than a limit, which is the smallest
    that suffices, in steps. The order of ``works`` makes no difference.
    """
    works = sorted(works, key=lambda work: (-work.seconds, work.name))
    limit = lower_bound(works, count)
    while (runners := _deal(works, count, limit)) is None:
        limit *= STEP
    return runners


def _deal(works: Iterable[Work], count: int, limit: float) -> list[list[Work]] | None:
    """Return the runners' works; None if one of them would be busy for longer than ``limit``."""
    runners: list[list[Work]] = [[] for _ in range(count)]
    busy = [0.0] * count
    at: dict[str, dict[int, float]] = defaultdict(dict)  # what of a group a runner does anyway
    for work in works:
        there = at[work.group]
        added = {
            i: max(work.seconds - work.shared, work.seconds - done) for i, done in there.items()
        }
        least = min(range(count), key=busy.__getitem__)
        added.setdefault(least, work.seconds)
        fitting = [i for i, more in added.items() if busy[i] + more <= limit]
        if not fitting:
            return None
        chosen = min(fitting, key=lambda i: (added[i], busy[i], i))
        runners[chosen].append(work)
        busy[chosen] += added[chosen]
        there[chosen] = max(there.get(chosen, 0.0), work.shared)
    return runners
