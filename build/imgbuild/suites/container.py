"""The container that suites run in: with the GPUs that the engine offers, or as it can be had.

Suites start further containers and networks. All that belongs to the test of one image carries one
label, by which it is removed: at the end, and, where a run was killed, by the next.
"""

import hashlib
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from imgbuild.engine.client import Engine
from imgbuild.engine.types import GpuRequest, RunOptions
from imgbuild.errors import ImgbuildError
from imgbuild.project import state_dir
from imgbuild.suites.driver import lend_stub
from imgbuild.suites.subject import Subject

#: Marks the containers and networks of test runs; the in-image suites hand the value on.
CONTAINER_LABEL = "imgbuild.test-of"
#: NCCL passes what ranks share through /dev/shm: the engine's 64 MB are soon full.
SHARED_MEMORY = 1 << 30


@dataclass(frozen=True)
class Started:
    """A running container. ``no_gpu`` is why it has no GPU, ``offered`` whether there are any."""

    id: str
    no_gpu: str | None = None
    offered: bool = False


def label_of(name: str) -> str:
    """Return the label's value for one image of this user on this machine.

    Whoever shares the engine from elsewhere, or with another state folder, has another value: the
    locks that keep two runs of one image apart lie in the state folder.
    """
    return f"{name}@{place_of(state_dir())}"


def place_of(state: Path) -> str:
    """Return what tells this machine and state folder from others."""
    return hashlib.sha256(f"{socket.gethostname()}\0{state}".encode()).hexdigest()[:12]


def remove_leftovers(names: Iterable[str], engine: Engine) -> None:
    """Remove what test runs of these images left; the images' locks must be held."""
    values = {label_of(name) for name in names}
    for container in engine.containers(CONTAINER_LABEL):
        if container.labels.get(CONTAINER_LABEL) in values:
            engine.remove_container(container.id)
    for network in engine.networks(CONTAINER_LABEL):
        if network.labels.get(CONTAINER_LABEL) in values:
            engine.remove_network(network.id)


@contextmanager
def suite_container(
    subject: Subject, engine: Engine, say: Callable[[str], None]
) -> Iterator[Started]:
    """Give a container of the image that sleeps; remove it at the end, and all that suites left.

    Raises:
        MachineError: the engine cannot start it, without GPUs too.

    """
    try:
        started = _start(subject, engine)
        if started.no_gpu and subject.needs_driver:
            fault = lend_stub(engine, started.id, subject.export)
            if fault:
                say(f"no stub of the driver: {fault}")
        yield started
    finally:
        remove_leftovers([subject.name], engine)


def _start(subject: Subject, engine: Engine) -> Started:
    """Ask for GPUs where the image can use them; a refusal is kept as the reason."""
    if subject.variant != "gpu":
        return Started(_sleeping(subject, engine, None))
    gpus = engine.version().gpus
    if gpus is None:
        plain = _sleeping(subject, engine, None)
        return Started(plain, "the engine offers none to containers")
    try:
        return Started(_sleeping(subject, engine, gpus), offered=True)
    except ImgbuildError as error:
        plain = _sleeping(subject, engine, None)
        return Started(plain, " ".join(str(error).split()), offered=True)


def _sleeping(subject: Subject, engine: Engine, gpus: GpuRequest | None) -> str:
    options = RunOptions()
    if gpus:
        options = replace(options, gpus=gpus, shm_bytes=SHARED_MEMORY)
    return engine.start(
        subject.image_id,
        command=["sleep", "infinity"],
        labels={CONTAINER_LABEL: label_of(subject.name)},
        options=options,
    )
