"""Options of ``imgbuild build`` that contradict each other, or name what is not there."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from imgbuild.errors import InputError


@dataclass(frozen=True)
class Given:
    """The options that do not go with each other, as they were given."""

    plan: bool = False
    refresh_base: bool = False
    offline: Path | None = None
    seed: Path | None = None
    pull: bool = False
    source: str | None = None


_CONFLICTS: tuple[tuple[Callable[[Given], object], str], ...] = (
    (
        lambda given: given.plan and given.refresh_base,
        "--plan makes nothing, and --refresh-base makes base images; choose one.",
    ),
    (
        lambda given: given.offline and given.refresh_base,
        "--offline takes the base image that was fetched; drop --refresh-base.",
    ),
    (
        lambda given: given.seed and given.offline,
        "--seed asks the network for what is missing, --offline never; choose one.",
    ),
    (
        lambda given: given.source is not None and not given.pull,
        "--from says where --pull looks: give both, or neither.",
    ),
)


def conflict(given: Given) -> str | None:
    """Return what is wrong with the options together, the first fault; nothing if they fit."""
    return next((said for is_so, said in _CONFLICTS if is_so(given)), None)


def require_consistent(given: Given) -> None:
    """Refuse options that do not go together, and folders that are not there.

    Raises:
        InputError: what is wrong.

    """
    said = conflict(given)
    if said:
        raise InputError(said)
    for option, folder in (("--offline", given.offline), ("--seed", given.seed)):
        if folder and not folder.is_dir():
            raise InputError(
                f"{option} {folder}: there is no such folder; `imgbuild fetch` makes one."
            )
