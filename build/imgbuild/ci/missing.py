"""Which images are not published as they are now, by the input tags of the repository."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from imgbuild.ci.digests import CheckoutDigests
from imgbuild.matrix.tags import input_tag
from imgbuild.publish.published import published_inputs
from imgbuild.registry.client import RegistryClient, connect
from imgbuild.registry.repository import select_repository
from imgbuild.settings import Settings

NOT_PUBLISHED = "not published with these inputs"
NOT_MADE = "its base image is not made here yet, so its input digest is not known"


def not_published(
    side: CheckoutDigests,
    names: Sequence[str],
    repository: str | None,
    settings: Settings,
    say: Callable[[str], None],
) -> Mapping[str, str]:
    """Return why images count as missing, by name, from the registry's tags.

    ``repository`` is that of ``--from``; None for that of the settings.

    Raises:
        InputError: no repository is named.
        MachineError: the registry does not answer.
        CheckFailedError: it refuses.

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
    return dict(_missing(published_inputs(registry), side, names))


def _missing(
    published: Collection[str], side: CheckoutDigests, names: Sequence[str]
) -> Iterator[tuple[str, str]]:
    for name in names:
        digest = side.exact(name)
        if digest is None:
            yield name, NOT_MADE
        elif input_tag(digest) not in published:
            yield name, NOT_PUBLISHED
