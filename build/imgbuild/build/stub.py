"""Exporting the stub of the driver's library from the stage of an image that has it."""

import time
from dataclasses import replace
from pathlib import Path

from imgbuild.build.supplies import bring_downloads
from imgbuild.build.targets import bake_target
from imgbuild.build.workshop import Workshop
from imgbuild.dockerfile.labels import INPUT_DIGEST
from imgbuild.engine.bake import run_export
from imgbuild.errors import CheckFailedError
from imgbuild.matrix.images import Image

#: The stage that holds nothing but ``/libcuda.so.1``.
STAGE = "driver-stub"


def export_stub(image: Image, image_id: str, workshop: Workshop, folder: Path) -> None:
    """Write the stub into ``folder``, out of the build cache of the image.

    Raises:
        CheckFailedError: the image was not built from this checkout, or the stage fails.
        MachineError: this machine cannot build.

    """
    (item,) = workshop.plan([image], test=False)
    stored = workshop.engine.inspect(image_id)
    if stored is None or stored.labels.get(INPUT_DIGEST) != item.digest.total:
        raise CheckFailedError(f"{image_id} was not built from this checkout")
    # The same folders as in the image's build: its stages then come from the cache.
    supplies = bring_downloads([item], workshop)[image.name]
    target = bake_target(item, workshop.inputs, supplies, workshop.project, workshop.revision)
    log = workshop.state / "logs" / f"{time.strftime('%Y%m%dT%H%M%S')}-{image.name}-stub.log"
    run_export(
        workshop.buildx,
        workshop.host,
        replace(target, target=STAGE, labels={}, output=f"type=local,dest={folder}"),
        log=log,
        listener=lambda _: None,
    )
