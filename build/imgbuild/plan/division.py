"""Divide images between runners, so that images with shared stages stay together."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from imgbuild.core.files import sha256
from imgbuild.core.project import Project
from imgbuild.dockerfile.render import own_dockerfile
from imgbuild.matrix.images import Image, minor_of

#: Build and test times in seconds, on two cores without caches. Horovod's depend on its minor
#: version. Source: benchmarks/scale.py, which says where each was measured.
SYSTEM, TENSORFLOW, CUDA, EXPORT, SUITES, SUITES_GPU = 56, 27, 76, 3, 45, 63
HOROVOD = {"0.15": 16, "0.16": 46, "0.18": 51, "0.19": 84, "0.20": 80}
HOROVOD_NEWER, HOROVOD_GPU = 80, 121
#: Stages that images share in addition to the system; only the first that an image has counts.
SHARED_STAGES = {"packages-cuda": CUDA, "cuda": CUDA, "packages-tensorflow": TENSORFLOW}
#: Factor by which the limit of a division grows until the images fit.
STEP = 1.01


@dataclass(frozen=True)
class Work:
    """The seconds to build and test one image alone, on a runner without caches.

    ``shared`` has the seconds of stages that other images also have. A runner builds them once.
    """

    name: str
    seconds: float
    shared: Mapping[str, float] = field(default_factory=dict)


def estimate_works(
    images: Iterable[Image], project: Project, earlier: Mapping[str, float]
) -> list[Work]:
    """Estimate the work for each image; ``earlier`` has the seconds of earlier builds, by name.

    An image without an earlier build gets an estimate, scaled like the measured images. Shared
    stages are always estimated, and count for at most half of an image.
    """
    works = [_estimate_work(image, project) for image in images]
    known = [work for work in works if earlier.get(work.name)]
    measured = sum(earlier[work.name] for work in known)
    scale = measured / sum(work.seconds for work in known) if known else 1.0
    rescaled = []
    for work in works:
        seconds = earlier.get(work.name) or work.seconds * scale
        rescaled.append(_rescale(work, seconds))
    return rescaled


def _rescale(work: Work, seconds: float) -> Work:
    """Return the work scaled to ``seconds``."""
    part = min(1.0, seconds / 2 / sum(work.shared.values()))
    shared = {stage: estimate * part for stage, estimate in work.shared.items()}
    return Work(work.name, seconds, shared)


def _estimate_work(image: Image, project: Project) -> Work:
    shared: dict[str, float] = {image.os_name: SYSTEM}
    stages = own_dockerfile(image, project.templates).stages
    if stage := next((name for name in SHARED_STAGES if name in stages), None):
        text = f"{image.version_of('python')}\n{stages[stage].text}"
        shared[sha256(text.encode())] = SHARED_STAGES[stage]
    version = image.keys.get("horovod")
    if image.variant == "gpu":
        own = CUDA + HOROVOD_GPU + SUITES_GPU
    elif version:
        own = HOROVOD.get(minor_of(version), HOROVOD_NEWER) + SUITES
    else:
        own = SUITES
    return Work(image.name, SYSTEM + TENSORFLOW + EXPORT + own, shared)


def sum_seconds(works: Iterable[Work]) -> float:
    """Return the seconds that one runner needs if it builds shared stages once."""
    own = 0.0
    shared: dict[str, float] = {}
    for work in works:
        own += work.seconds - sum(work.shared.values())
        shared |= work.shared
    return own + sum(shared.values())


def lower_bound(works: Sequence[Work], count: int) -> float:
    """Return the seconds that no division between ``count`` runners can beat."""
    return max([sum_seconds(works) / count, *(work.seconds for work in works)])


def divide(works: Iterable[Work], count: int) -> list[list[Work]]:
    """Divide the works between ``count`` runners; the order of ``works`` does not matter.

    Groups of works that share stages are dealt together, longest first. Each work goes to the
    runner that needs the fewest additional seconds, because it already built shared stages. If
    several runners are equal, an empty one comes first, then the busiest. No runner may exceed a
    time limit, which grows until all works fit.
    """
    works = list(works)
    total: defaultdict[str, float] = defaultdict(float)
    for work in works:
        for stage in work.shared:
            total[stage] += work.seconds

    def order(work: Work) -> tuple[list[tuple[float, str]], float, str]:
        stages = sorted((-total[stage], stage) for stage in work.shared)
        return stages, -work.seconds, work.name

    works.sort(key=order)
    limit = lower_bound(works, count)
    while (runners := _deal(works, count, limit)) is None:
        limit *= STEP
    return runners


def _deal(works: Iterable[Work], count: int, limit: float) -> list[list[Work]] | None:
    """Deal the works to the runners; return None if a runner would exceed ``limit`` seconds."""
    runners: list[list[Work]] = [[] for _ in range(count)]
    loads = [0.0] * count
    done: defaultdict[str, set[int]] = defaultdict(set)
    for work in works:
        more = [work.seconds] * count
        for stage, seconds in work.shared.items():
            for runner in done[stage]:
                more[runner] -= seconds
        fitting = [runner for runner in range(count) if loads[runner] + more[runner] <= limit]
        if not fitting:
            return None
        least = min(fitting, key=lambda i: (more[i], loads[i] > 0, -loads[i], i))
        runners[least].append(work)
        loads[least] += more[least]
        for stage in work.shared:
            done[stage].add(least)
    return runners
