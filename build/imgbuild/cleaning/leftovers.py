"""What killed test runs left on the engine: containers, networks and volumes with their label."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from imgbuild.cleaning.busy import worker_on
from imgbuild.cleaning.finding import Finding
from imgbuild.cleaning.kinds import Kind
from imgbuild.engine.client import Engine
from imgbuild.suites.container import CONTAINER_LABEL


@dataclass(frozen=True)
class Place:
    """Whose test runs: ``own`` tells this machine and state folder from others.

    ``busy`` are the processes at work; ``elsewhere`` takes those of others too, whose locks cannot
    be seen from here.
    """

    own: str
    busy: dict[str, str]
    elsewhere: bool = False


def find_leftovers(engine: Engine, place: Place) -> Iterator[Finding]:
    """Yield what carries the label of a test run that is over; containers first, networks last."""
    for container in engine.containers(CONTAINER_LABEL):
        remove = _container_remover(engine, container.id)
        yield from _finding(
            Kind.CONTAINERS, container.id[:12], container.labels, place, remove, container.created
        )
    for network in engine.networks(CONTAINER_LABEL):
        remove = _network_remover(engine, network.id)
        yield from _finding(Kind.NETWORKS, network.id[:12], network.labels, place, remove, 0)
    for volume in engine.volumes(CONTAINER_LABEL):
        remove = _volume_remover(engine, volume.name)
        yield from _finding(Kind.VOLUMES, volume.name, volume.labels, place, remove, volume.created)


def _finding(  # noqa: PLR0913, PLR0917 - the fields of one line
    kind: Kind,
    name: str,
    labels: Mapping[str, str],
    place: Place,
    remove: Callable[[], bool],
    since: int,
) -> Iterator[Finding]:
    image, _, where = labels[CONTAINER_LABEL].rpartition("@")
    mine = where == place.own
    if not mine and not place.elsewhere:
        return
    why = f"of a test of {image}" + ("" if mine else f", by another state folder ({where})")
    worker = worker_on(image, place.busy) if mine else None
    kept = f"process {worker} tests it now" if worker else None
    yield Finding(kind, name, why, remove, since=since, kept=kept, image=image if mine else None)


def _container_remover(engine: Engine, container: str) -> Callable[[], bool]:
    def remove() -> bool:
        engine.remove_container(container)
        return True

    return remove


def _network_remover(engine: Engine, network: str) -> Callable[[], bool]:
    def remove() -> bool:
        engine.remove_network(network)
        return all(one.id != network for one in engine.networks(CONTAINER_LABEL))

    return remove


def _volume_remover(engine: Engine, volume: str) -> Callable[[], bool]:
    return lambda: engine.remove_volume(volume)
