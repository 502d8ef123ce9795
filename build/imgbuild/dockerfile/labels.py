"""The labels of an image: OCI's, and one for each pin."""

from imgbuild.matrix.images import Image

#: Labels of this project that are not defined by OCI.
NAMESPACE = "imgbuild"
INPUT_DIGEST = f"{NAMESPACE}.input-digest"
INPUT_PARTS = f"{NAMESPACE}.inputs"
NAME = f"{NAMESPACE}.name"
#: The repository an image was built for: checkouts with another one share the engine, not images.
REPOSITORY = f"{NAMESPACE}.repository"
#: Says that stand-ins were built in: an image for tests, which is never pushed.
STANDIN = f"{NAMESPACE}.standin"
#: Says that the Horovod wheel came from a remote store; its value is the key of the wheel.
TAKEN_WHEEL = f"{NAMESPACE}.input.taken-wheel"


def pin_labels(image: Image) -> dict[str, str]:
    """Return the labels that the Dockerfile itself sets: fixed by the matrix."""
    labels = {
        "org.opencontainers.image.title": image.name,
        "org.opencontainers.image.version": image.tensorflow,
        "org.opencontainers.image.created": image.matrix.epoch,
        NAME: image.name,
        **{f"{NAMESPACE}.pin.{pin.component}": pin.version for pin in image.pins},
        f"{NAMESPACE}.mpi-flavour": image.mpi.flavour,
    }
    # The licence of an MPI that is no free software: its users should know of it.
    if image.mpi.origin in {"index", "installer"}:
        labels[f"{NAMESPACE}.licence.mpi"] = image.mpi.licence_name
    return labels
