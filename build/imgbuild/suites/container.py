"""The container that suites run in: with the GPUs that the engine offers, or as it can be had."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from imgbuild.engine.protocol import Engine
from imgbuild.engine.stored import GpuRequest, RunOptions
from imgbuild.errors import ImgbuildError
from imgbuild.matrix.image import Image
from imgbuild.suites.driver import Export, lend_stub, needs_driver

#: Marks the containers of test runs, so that leftovers of a killed run are found.
CONTAINER_LABEL = "imgbuild.test-of"
#: NCCL passes what ranks share through /dev/shm: the engine's 64 MB are soon full.
SHARED_MEMORY = 1 << 30


@dataclass(frozen=True)
class Started:
    """A running container. ``no_gpu`` is why it has no GPU, ``offered`` whether there are any."""

    id: str
    no_gpu: str | None = None
    offered: bool = False


@contextmanager
def suite_container(
    image: Image, image_id: str, engine: Engine, export: Export | None, say: Callable[[str], None]
) -> Iterator[Started]:
    """Give a container of the image that sleeps, and remove it at the end.

    Raises:
        MachineError: the engine cannot start it, without GPUs too.

    """
    started = _start(image, image_id, engine)
    try:
        if started.no_gpu and needs_driver(image):
            fault = lend_stub(engine, started.id, export)
            if fault:
                say(f"no stub of the driver: {fault}")
        yield started
    finally:
        engine.remove_container(started.id)


def _start(image: Image, image_id: str, engine: Engine) -> Started:
    """Ask for GPUs where the image can use them; a refusal is kept as the reason."""
    if image.variant != "gpu":
        return Started(_sleeping(image, image_id, engine, None))
    gpus = engine.version().gpus
    if gpus is None:
        plain = _sleeping(image, image_id, engine, None)
        return Started(plain, "the engine offers none to containers")
    try:
        return Started(_sleeping(image, image_id, engine, gpus), offered=True)
    except ImgbuildError as error:
        plain = _sleeping(image, image_id, engine, None)
        return Started(plain, " ".join(str(error).split()), offered=True)


def _sleeping(image: Image, image_id: str, engine: Engine, gpus: GpuRequest | None) -> str:
    options = RunOptions()
    if gpus:
        options = replace(options, gpus=gpus, shm_bytes=SHARED_MEMORY)
    return engine.start(
        image_id,
        command=["sleep", "infinity"],
        labels={CONTAINER_LABEL: image.name},
        options=options,
    )
