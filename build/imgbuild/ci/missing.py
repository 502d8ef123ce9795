"""Which images are not published as they are now, by the index of the registry."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from imgbuild.ci.digests import CheckoutDigests
from imgbuild.publishing.index import Index, read_index
from imgbuild.publishing.lookup import find_published
from imgbuild.registry.client import RegistryClient, connect
from imgbuild.registry.repository import select_repository
from imgbuild.settings import Settings

NEVER, OTHER = "never published", "not published with these inputs"
NOT_MADE = "its base image is not made here yet, so its input digest is not known"


def not_published(
    side: CheckoutDigests,
    names: Sequence[str],
    repository: str | None,
    settings: Settings,
    say: Callable[[str], None],
) -> Mapping[str, str]:
    """Return why images count as missing, by name, asking the registry for its index.

    ``repository`` is that of ``--from``; None for that of the settings.

    Raises:
        InputError: no repository is named.
        MachineError: the registry does not answer.
        CheckFailedError: it refuses, or its index is damaged.

    """
    where, option = select_repository(repository, settings, "--from")
    registry = connect(where, settings, say, option=option)
    try:
        return missing_in(registry, side, names)
    finally:
        registry.close()


def missing_in(
    registry: RegistryClient, side: CheckoutDigests, names: Sequence[str]
) -> Mapping[str, str]:
    """Return why images are missing in a registry, by name."""
    return dict(_missing(read_index(registry) or Index(), side, names))


def _missing(
    index: Index, side: CheckoutDigests, names: Sequence[str]
) -> Iterator[tuple[str, str]]:
    published = {record.image for record in index.records}
    for name in names:
        digest = side.exact(name)
        if digest is None:
            yield name, NOT_MADE
        elif find_published(index, name, digest) is None:
            yield name, OTHER if name in published else NEVER
