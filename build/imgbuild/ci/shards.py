"""Images in shards, one a CI job: what shares expensive stages stays together. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from imgbuild.ci.work import Work, seconds
from imgbuild.errors import InputError

#: How much longer than the ideal a shard may take for the sake of what its images share: each is
#: tried, and the one is taken whose longest shard is shortest.
SLACKS = (1.3, 1.0, 1.1, 1.15, 1.2, 1.4, 1.5)
#: Of more images than these only the first is tried: 300 take five seconds for each.
_MANY = 80
#: More shards than any CI system starts at once are a slip of the finger.
MOST = 1000

Group = tuple[str, ...]


@dataclass(frozen=True)
class Shard:
    """One of several: its number from 1, of how many, and its images."""

    number: int
    of: int
    images: tuple[str, ...]

    @property
    def label(self) -> str:
        """What ``--shard`` calls it: ``1/4``."""
        return f"{self.number}/{self.of}"


def shards(works: Mapping[str, Work], count: int) -> tuple[Shard, ...]:
    """Return at most ``count`` shards, none of them empty: each image is in exactly one.

    ``works`` are the images in the order of the matrix, which the shards keep. The same images give
    the same shards on every machine.
    """
    groups = _best(works, count)
    order = [*works]
    ordered = sorted(
        (tuple(sorted(group, key=order.index)) for group in groups),
        key=lambda group: order.index(group[0]),
    )
    return tuple(Shard(i, count, group) for i, group in enumerate(ordered, 1))


def parse_shard(text: str) -> tuple[int, int]:
    """Return number and count of ``1/4``.

    Raises:
        InputError: it is no such pair, or there is no such shard of so many.

    """
    found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text, re.ASCII)
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count <= MOST:
        raise InputError(
            f"--shard {text!r}: give NUMBER/COUNT, the number from 1 to the count and the count at "
            f"most {MOST}, such as 1/4."
        )
    return number, count


def _best(works: Mapping[str, Work], count: int) -> list[Group]:
    """Return the images in at most ``count`` groups: the longest short, then little work in all."""
    ideal = max(
        seconds(works.values()) / count,
        max((seconds([work]) for work in works.values()), default=0.0),
    )
    judged: dict[Group, float] = {}
    slacks = SLACKS[:1] if len(works) > _MANY else SLACKS
    tried = [_joined(_Groups(works, judged), slack * ideal, count) for slack in slacks]
    return min(tried, key=lambda groups: groups.cost).groups


def _joined(groups: "_Groups", limit: float, count: int) -> "_Groups":
    while len(groups.groups) > count:
        groups.join(groups.best(limit))
    return groups


class _Groups:
    """Groups of images, each alone at first; ``judged`` keeps what a group takes, in seconds."""

    def __init__(self, works: Mapping[str, Work], judged: dict[Group, float]) -> None:
        self.groups: list[Group] = [(name,) for name in works]
        self._works = works
        self._judged = judged

    @property
    def cost(self) -> tuple[float, float]:
        """What the longest group takes, and all of them."""
        each = [self._alone(group) for group in self.groups]
        return max(each, default=0.0), sum(each)

    def best(self, limit: float) -> tuple[Group, Group]:
        """Return the pair that saves most within the limit; else that which takes least."""
        pairs = [*combinations(self.groups, 2)]
        fitting = [pair for pair in pairs if self._together(pair) <= limit]
        if fitting:
            return max(fitting, key=self._saved)
        return min(pairs, key=self._together)

    def join(self, pair: tuple[Group, Group]) -> None:
        """Make one group of two, in the place of the first."""
        place = self.groups.index(pair[0])
        self.groups[place] = (*pair[0], *pair[1])
        self.groups.remove(pair[1])

    def _saved(self, pair: tuple[Group, Group]) -> float:
        return self._alone(pair[0]) + self._alone(pair[1]) - self._together(pair)

    def _together(self, pair: tuple[Group, Group]) -> float:
        return self._alone((*pair[0], *pair[1]))

    def _alone(self, group: Group) -> float:
        if group not in self._judged:
            self._judged[group] = seconds(self._works[name] for name in group)
        return self._judged[group]
