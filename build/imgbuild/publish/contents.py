"""Compare the running image with every part of its tags."""

from imgbuild.core.errors import CheckFailedError
from imgbuild.engine.client import Engine
from imgbuild.matrix.components import WITHOUT_MPI
from imgbuild.matrix.images import Image, all_images, minor_of, parts_of, stack_part
from imgbuild.matrix.rule_model import Part
from imgbuild.matrix.tags import python_part
from imgbuild.suites.container import NOTHING, ImageContents, join_versions, read_contents


def read_parts(contents: ImageContents, image: Image) -> dict[Part, str]:
    """Return every part of the tags except the release, as found in the image.

    ``image`` only decides how versions are written: a shorter version with the same meaning is
    written as planned.
    """
    flavour, version = contents.mpi
    if flavour == NOTHING and not image.horovod:
        flavour = WITHOUT_MPI
    cuda = ""
    if contents.cuda:
        cuda = f"cuda{_cuda(contents, image)}"
    distinct = flavour
    if image.usual_mpi and flavour == image.mpi.flavour:
        distinct = ""
    return {
        "tensorflow": contents.tensorflow,
        "minor": minor_of(contents.tensorflow),
        "variant": _variant(contents, image),
        "python": python_part(contents.python),
        "cuda": cuda,
        "mpi": flavour + _as_planned(version, image.mpi.version),
        "os": "".join(contents.os),
        "stack": stack_part(image, _stack(contents.os, image)),
        "flavour": distinct,
    }


def _as_planned(version: str, planned: str) -> str:
    """Return the planned version if one version is a prefix of the other.

    For example, Intel MPI 2018.3.222 reports 2018.3, and the pin CUDA 10.1 means 10.1.243.
    """
    if not version:
        return ""
    pairs = zip(version.split("."), planned.split("."), strict=False)
    if all(own == other for own, other in pairs):
        return planned
    return version


def _variant(contents: ImageContents, image: Image) -> str:
    """Return the framework's variant, plus the package name if it differs from the variant's."""
    kinds = {True: "gpu", False: "cpu", None: NOTHING}
    built, kernels = kinds[contents.built_with_cuda], kinds[contents.kernels]
    if built != kernels:
        return f"{built} by its build_info.py but {kernels} by its library"
    names = join_versions(name for name, _ in contents.distributions if name != "horovod")
    known = {str(variant): name for variant, name in image.release.distribution.items()}
    known[image.variant] = image.distribution
    if known.get(built) == names:
        return built
    return f"{built} of {names}"


def _cuda(contents: ImageContents, image: Image) -> str:
    """Return the CUDA version with two numbers, as in pins; all versions if there are several."""
    planned = image.version_of("cuda") if image.cuda else NOTHING
    versions = []
    for version in contents.cuda:
        is_planned = _as_planned(version, planned) == planned
        versions.append(planned if is_planned else minor_of(version))
    return join_versions(versions)


def _stack(system: tuple[str, str], image: Image) -> str:
    """Return the image's stack if it has images on this system; else all stacks that have some."""
    stacks = set()
    for other in all_images(image.matrix):
        if (other.os.distribution, other.os.version) == system:
            stacks.add(other.stack)
    if image.stack in stacks:
        return image.stack
    return " or ".join(sorted(stacks)) or NOTHING


def check_contents(image: Image, image_id: str, engine: Engine) -> None:
    """Compare the running image with every part of its tags.

    The image's lock must be held, because the container has the label of the image's test runs. If
    imgbuild is killed, the next test run therefore removes the container.

    CheckFailedError: the image cannot be read, or differs; the message has all differences.
    MachineError: the engine cannot start the container, or there is no docker client.
    """
    planned = parts_of(image)
    read = read_parts(read_contents(image.name, image_id, engine), image)
    scheme = image.matrix.tags
    differences: dict[Part, str] = {}
    for entry in (scheme.immutable, *scheme.moving):
        for part in entry:
            expected, actual = planned.get(part, ""), read.get(part, "")
            if part != "release" and actual != expected:
                text = f"{part}: expected {expected or NOTHING}, found {actual or NOTHING}"
                differences[part] = text
    if differences:
        different = "; ".join(differences.values())
        raise CheckFailedError(
            f"{image.name} ({image_id}) does not match its tags: {different}. It was not "
            "published. Build it again, or correct matrix.yaml if the image is right."
        )
