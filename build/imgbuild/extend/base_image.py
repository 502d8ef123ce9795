"""Read the base image of an extension, from its lock if it is in the matrix, else from itself."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import TypeAdapter

from imgbuild.build.context import BuildContext, image_locks
from imgbuild.core import scalars
from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.project import Project
from imgbuild.dockerfile.labels import NAME, added_packages
from imgbuild.engine.types import AMD64, ARM64, machine_platform
from imgbuild.locks.constraints import companion_bounds, other_tensorflows, package_bounds
from imgbuild.locks.lockfile import locked_packages
from imgbuild.locks.requirements import uv_platform
from imgbuild.locks.resolver import Target
from imgbuild.matrix.evidence import MACHINES
from imgbuild.matrix.images import Image, all_images, with_other_architectures
from imgbuild.net.addresses import has_registry
from imgbuild.net.signing import require_trusted
from imgbuild.suites.container import ImageContents, read_contents, remove_leftovers
from imgbuild.suites.runner import folder_name

#: The names of TensorFlow's package, all with the same files.
TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu")


#: Prefix for local images in a printed Dockerfile. No registry can have this name.
#: Source: RFC 2606, section 2.
LOCAL = "local.invalid/"


def local_name(reference: str, image_id: str = "") -> str:
    """Return a name for an image in a Dockerfile that cannot pull another image by mistake.

    A reference with a registry is returned unchanged. BuildKit looks for other names on Docker Hub
    and supports no ids (https://github.com/moby/moby/issues/39769), so the id becomes a tag.
    """
    if has_registry(reference):
        return reference
    repository, *rest = re.split("[:@]", reference, maxsplit=1)
    own_tag = "".join(rest).rpartition(":")[2]
    tag = image_id.partition(":")[2] or own_tag or "latest"
    return f"{LOCAL}{repository}:{tag}"


@dataclass(frozen=True)
class BaseImage:
    """An image to build on.

    - ``system``: distribution and version, for example ``debian-12``
    - ``packages``: versions of its Python packages, by canonical name
    - ``local``: packages that are not from the index, for example a Horovod compiled for it
    - ``image``: the matching image in the matrix, if any
    - ``user``: the user of its containers
    - ``id``: the engine's id, if known
    - ``added``: packages that an extension added to ``image``
    - ``changed``: whether it has packages of ``image`` in other versions
    - ``machine``: the architecture as wheels and ``uname`` name it, for example ``aarch64``
    - ``bounds``: versions that its packages may have (empty: any), and compatible releases of other
      packages; packages of the image without bounds keep their version
    """

    name: str
    reference: str
    python: str
    glibc: str
    system: str
    packages: Mapping[str, str]
    local: Iterable[str]
    image: Image | None = None
    user: str = ""
    id: str = ""
    added: Mapping[str, str] = field(default_factory=dict)
    changed: bool = False
    bounds: Mapping[str, str] = field(default_factory=dict)
    machine: str = MACHINES["amd64"]

    @property
    def movable(self) -> dict[str, str]:
        """The packages that additions may change, with the versions that other packages accept."""
        movable = {}
        for name in self.packages:
            bounds = self.bounds.get(name, "==")
            if not bounds.startswith("=="):
                movable[name] = bounds
        return movable

    @property
    def companions(self) -> dict[str, str]:
        """Packages that the image does not have, with the compatible releases."""
        return {name: bounds for name, bounds in self.bounds.items() if name not in self.packages}

    @property
    def local_name(self) -> str:
        """The name in a printed Dockerfile; see `local_name`."""
        return local_name(self.reference, self.id)

    @property
    def platform(self) -> str:
        return uv_platform(self.glibc, self.machine)

    @property
    def engine_platform(self) -> str:
        """The platform as Docker names it, for example ``linux/arm64``."""
        return machine_platform(self.machine)

    @property
    def target(self) -> Target:
        return Target(self.python, self.platform, self.glibc)

    @property
    def stubs(self) -> dict[str, str]:
        """Packages that uv must not look up in the index: `local`, and TensorFlow's other names.

        ``tensorflow-cpu`` also satisfies a requirement for ``tensorflow``.
        """
        stubs = {name: self.packages[name] for name in self.local}
        own = [self.packages[name] for name in TENSORFLOWS if name in self.packages]
        if own:
            others = (name for name in TENSORFLOWS if name not in self.packages)
            stubs |= dict.fromkeys(others, own[0])
        return stubs


def family_base(image: Image, project: Project) -> BaseImage:
    """Return the base for an image in the matrix, built or not; InputError for a damaged lock."""
    packages = locked_packages(image, project.locks)
    local = [name for name in ("horovod", *image.provided) if name in packages]
    bounds = package_bounds(image, project.locks)
    companions = companion_bounds(image, packages)
    return BaseImage(
        name=image.name,
        reference=image.tags[0],
        python=image.version_of("python"),
        glibc=image.os.glibc,
        system=image.os_name,
        packages=packages,
        local=local,
        image=image,
        bounds={**bounds, **companions},
        machine=image.machine,
    )


def _machine(reference: str, platform: str) -> str:
    """Return the architecture of a platform as wheels name it; InputError: no image has it."""
    for machine in MACHINES.values():
        if machine_platform(machine) == platform:
            return machine
    raise InputError(
        f"{reference} is for {platform}, and imgbuild can extend only images for {AMD64} and "
        f"{ARM64}. Use the image in a Dockerfile of your own (`FROM {reference}`); its pip keeps "
        "the versions of the image."
    )


_USER = TypeAdapter(scalars.ImageUser)


def _require_user(user: str, reference: str) -> str:
    """Return the user of an image; CheckFailedError if a Dockerfile cannot contain it."""
    try:
        return _USER.validate_python(user) if user else ""
    except ValueError:
        raise CheckFailedError(
            f"{reference}: its user {user[:80]!r} is not USER or USER:GROUP, with names or "
            "numbers. Correct the USER of the image, or extend another one."
        ) from None


def _require_no_triggers(configuration: Mapping[str, Any], reference: str) -> None:
    """Raise CheckFailedError if the image has ONBUILD instructions.

    They could mount the secrets of the build, and use its network. Source: Dockerfile reference,
    "ONBUILD".
    """
    if configuration.get("OnBuild"):
        raise CheckFailedError(
            f"{reference} has ONBUILD instructions. Every build on it would run them with the "
            "build's network and secrets. Build the image without them, or extend another one."
        )


def _require_packages(contents: ImageContents, reference: str) -> dict[str, str]:
    """Return the Python packages of an image.

    CheckFailedError: a name or a version is not valid for pip.
    """
    for name, version in contents.packages.items():
        try:
            canonicalize_name(name, validate=True)
            Version(version)
        except ValueError:
            text = f"{name} {version}"[:80]
            raise CheckFailedError(
                f"{reference} has the package {text!r}, which is not a valid name and version for "
                "pip. Remove it from the image, or extend another one."
            ) from None
    return dict(contents.packages)


def inspect_base(reference: str, context: BuildContext) -> BaseImage:
    """Return the base for any image reference; pull the image if the engine does not have it.

    An image is treated as an image in the matrix if its label names that image and it has exactly
    the packages of the lock. An extension of such an image is recognized if it
    also has the packages that its label lists.

    InputError: the engine does not have the image, and the reference has no registry.
    CheckFailedError: the image cannot be pulled, lacks Python or a trusted signature, has ONBUILD
        instructions, or has packages with invalid names or versions.
    """
    engine, locks = context.engine, context.state / "locks"
    stored = engine.need_or_pull(reference, context.log)
    require_trusted(
        stored.digests,
        reference,
        context.settings,
        made_here=context.store.was_made_here(stored.id),
        verified_by=context.store.verified_by(stored.id),
    )
    machine = _machine(reference, stored.platform)
    configuration = engine.configuration(stored.id)
    _require_no_triggers(configuration, reference)
    with image_locks([folder_name(reference)], engine.host, locks):
        remove_leftovers([reference], engine)
        contents = read_contents(reference, stored.id, engine)
    packages = _require_packages(contents, reference)
    user = _require_user(stored.user, reference)
    for image in with_other_architectures(all_images(context.images[0].matrix)):
        if image.name == stored.labels.get(NAME):
            base = family_base(image, context.project)
            own = replace(base, reference=reference, user=user, id=stored.id)
            if base.packages == packages:
                return own
            added = added_packages(stored.labels)
            if {**base.packages, **added} == packages:
                return _extended_base(own, packages, added)
    bounds = {}
    if packages.keys() & {*TENSORFLOWS}:
        bounds = other_tensorflows(packages)
    return BaseImage(
        name=reference,
        reference=reference,
        python=contents.python,
        glibc=contents.glibc,
        system="-".join(contents.os),
        packages=packages,
        local=packages,
        user=user,
        id=stored.id,
        bounds=bounds,
        machine=machine,
    )


def _extended_base(
    base: BaseImage, packages: Mapping[str, str], added: Mapping[str, str]
) -> BaseImage:
    """Return the base for an extended image with ``added`` packages.

    The index may not have them, because users can add their own wheels. Their requirements are
    unknown, so all packages keep their versions.
    """
    bounds = {name: text for name, text in base.companions.items() if name not in added}
    return replace(
        base,
        name=base.reference,
        packages=packages,
        local={*base.local, *added},
        added=added,
        changed=not base.packages.keys().isdisjoint(added),
        bounds=bounds,
    )
