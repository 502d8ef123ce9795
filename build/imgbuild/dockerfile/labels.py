"""The labels of an image: OCI's labels, and one label per pin."""

from collections.abc import Mapping

from imgbuild.matrix.images import Image

#: Labels of this project that are not defined by OCI.
NAMESPACE = "imgbuild"
INPUT_DIGEST = f"{NAMESPACE}.input-digest"
INPUT_PARTS = f"{NAMESPACE}.inputs"
NAME = f"{NAMESPACE}.name"
#: The version of each component.
PIN = f"{NAMESPACE}.pin."
MPI_FLAVOUR = f"{NAMESPACE}.mpi-flavour"
MPI_LICENCE = f"{NAMESPACE}.licence.mpi"
CUDA_LICENCE = f"{NAMESPACE}.licence.cuda"
#: The repository that an image was built for; a checkout uses only images of its own repository.
REPOSITORY = f"{NAMESPACE}.repository"
#: Marks an image for tests that contains stand-ins and is never pushed.
STANDIN = f"{NAMESPACE}.standin"
#: The packages that `imgbuild extend` added, as ``name==version``.
ADDED = f"{NAMESPACE}.added.pip"
#: The sha256 of the lock of these packages.
ADDED_LOCK = f"{NAMESPACE}.added.lock"
ADDED_APT = f"{NAMESPACE}.added.apt"
#: The base's packages that `imgbuild extend` replaced, as ``name==version``.
REPLACED = f"{NAMESPACE}.replaced.pip"
#: The key of a Horovod wheel from a repository; only earlier versions wrote this label.
TAKEN_WHEEL = f"{NAMESPACE}.input.taken-wheel"
#: build/targets.py writes these labels, with values from inputs/build_inputs.py.
BASE = f"{NAMESPACE}.input.base"
CPYTHON = f"{NAMESPACE}.input.cpython"
SUBSTITUTES = f"{NAMESPACE}.input.substitutes"
SNAPSHOT = f"{NAMESPACE}.snapshot."
#: The name of the image that `imgbuild extend` built on; all other labels are inherited from it.
EXTENDS = f"{NAMESPACE}.extends"
#: Which suites of its base an extension had to pass: `short`, `all` or `none`.
TESTED = f"{NAMESPACE}.tested"
#: The labels that OCI defines itself.
OCI = "org.opencontainers.image"
BASE_DIGEST = f"{OCI}.base.digest"
BASE_NAME = f"{OCI}.base.name"

#: The table of an image's labels in docs/contents.md, which `make derived` writes. Words in
#: capitals stand for names.
DESCRIPTIONS = {
    NAME: "The image's name in the matrix, for example `tf-2.2-cpu-debian`.",
    f"{PIN}COMPONENT": "The exact version of each component.",
    MPI_FLAVOUR: "`openmpi`, `intelmpi` or `no-mpi`.",
    MPI_LICENCE: "The licence of an MPI that is not free software.",
    CUDA_LICENCE: "The licence of NVIDIA's packages from the index, which are not free software.",
    INPUT_DIGEST: "The [input digest](internals.md#input-digest).",
    INPUT_PARTS: "The parts of the input digest.",
    REPOSITORY: "The repository it was built for; checkouts with another one leave it alone.",
    BASE: "`bootstrapped`, from a `registry` by digest, or an `OCI layout` of the building "
    "machine.",
    CPYTHON: "`source`: from the place that the Dockerfile names; or copied from a `local prefix`.",
    SUBSTITUTES: "Downloads that the settings replaced; absent if none.",
    f"{SNAPSHOT}debian": "The time of the [snapshot](snapshot.md) that Debian's "
    "packages came from; absent if none was set.",
    STANDIN: "Built from stand-ins, for tests; such images are named `standin.invalid/…` and "
    "cannot be pushed.",
}
#: The table of an extended image's labels in docs/contents.md.
EXTENSION_DESCRIPTIONS = {
    BASE_NAME: "The base.",
    BASE_DIGEST: "The digest of the base in the registry it came from, else its id in the engine.",
    EXTENDS: "The base's name in the matrix, or its reference.",
    ADDED: "The Python packages that were added; if the base is itself an extended image, its "
    "additions also.",
    ADDED_LOCK: "The sha256 of the lock of the last extension.",
    REPLACED: "The packages of the base that were replaced, with their previous versions.",
    ADDED_APT: "The system packages that were added.",
    TESTED: "The suites that had to pass before the tag was set: `short`, `all` or `none`.",
}


def added_packages(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of the packages that `imgbuild extend` added, by name."""
    pairs = (pin.partition("==") for pin in labels.get(ADDED, "").split())
    return {name: version for name, _, version in pairs}


def pin_labels(image: Image) -> dict[str, str]:
    """Return the labels that the Dockerfile sets from the matrix.

    Values contain no spaces, because BuildKit's history drops the quotes and scanners read the
    history as a Dockerfile.
    """
    labels = {
        f"{OCI}.title": image.name,
        f"{OCI}.version": image.tensorflow,
        f"{OCI}.vendor": NAMESPACE,
        f"{OCI}.created": image.matrix.epoch,
        NAME: image.name,
        **{f"{PIN}{pin.component}": pin.version for pin in image.pins},
        MPI_FLAVOUR: image.mpi.flavour,
    }
    # Show the licences of components that are not free software.
    if licence := _mpi_licence(image):
        labels[MPI_LICENCE] = licence
    if image.index_cuda:
        labels[CUDA_LICENCE] = image.index_cuda.licence_name
    return labels


def text_labels(image: Image) -> dict[str, str]:
    """Return the labels with spaces, which imgbuild passes to the build instead."""
    return {f"{OCI}.description": _description(image), f"{OCI}.licenses": _licences(image)}


def _mpi_licence(image: Image) -> str:
    return image.mpi.licence_name if image.mpi.origin == "index" else ""


def _description(image: Image) -> str:
    gpu = f"GPU (CUDA {image.version_of('cuda')})" if image.cuda else "CPU"
    system = f"{image.os.distribution.capitalize()} {image.os.version}"
    mpi = f"{'Open' if image.mpi.flavour == 'openmpi' else 'Intel'} MPI {image.mpi.version}"
    horovod = f", Horovod {image.version_of('horovod')} over {mpi}" if image.horovod else ""
    return f"TensorFlow {image.tensorflow} for {gpu}{horovod}, on {system}"


def _licences(image: Image) -> str:
    """Return the SPDX expression for the image's main components, not for every package.

    TensorFlow and Horovod have the licence Apache-2.0. SPDX has no names for the other terms
    (NOTICE).
    """
    terms = ["NVIDIA-EULA"] if image.cuda else []
    terms += ["Anaconda"] if _uses_anaconda(image) else []
    terms += [licence] if (licence := _mpi_licence(image)) else []
    return " AND ".join(["Apache-2.0", *(f"LicenseRef-{name}" for name in terms)])


def _uses_anaconda(image: Image) -> bool:
    """Return whether conda's installer or one of its packages comes from Anaconda's site."""
    if image.python.origin != "conda":
        return False
    installers = (pin.source for pin in image.pins if pin.component == "miniconda")
    site = image.matrix.upstream_urls.get("anaconda", "")
    return any(url.startswith(site) for url in (*image.python.packages, *installers))
