"""What an image must be, as the JSON that the in-image suites read."""

from typing import Any

from imgbuild.locks.lockfile import read_lock
from imgbuild.matrix.image import Image
from imgbuild.project import Project
from imgbuild.render.labels import pin_labels


def expectation(image: Image, project: Project) -> dict[str, Any]:
    """Return the image's pins, every locked package, and its labels.

    Raises:
        InputError: the image's lock is missing or damaged.

    """
    lock = read_lock(project.locks / image.lock_name)
    return {
        "name": image.name,
        "tensorflow": image.tensorflow,
        "variant": image.variant,
        "stack": image.stack,
        "pins": {pin.component: pin.version for pin in image.pins},
        "mpi_flavour": image.mpi.flavour,
        "os_id": image.os.distribution,
        "horovodrun": image.horovod.launcher,
        "packages": {**lock.versions, "horovod": image.version_of("horovod")},
        "labels": pin_labels(image),
    }
