"""Make base images that no registry provides, and load base images into the engine."""

from collections.abc import Callable, Iterable

from imgbuild.core.errors import CheckFailedError, ImgbuildError, InputError, MachineError
from imgbuild.core.files import work_folder
from imgbuild.core.settings import Settings
from imgbuild.engine.client import Engine
from imgbuild.engine.failure import find_fault
from imgbuild.engine.faults import EngineUnusableError, without_advice
from imgbuild.inputs.base import BOOTSTRAPPED, Base, require_made
from imgbuild.inputs.bootstrap import MADE_IN_PLACE, bootstrap_base
from imgbuild.inputs.oci_layout import read_layout, write_archive
from imgbuild.matrix.images import Image, with_build_images

#: The kinds of `BuildFault` that mean that the registry did not answer at all.
_NO_ANSWER = ("certificate", "unreachable")


def make_bases(
    images: Iterable[Image],
    settings: Settings,
    engine: Engine,
    log: Callable[[str], None],
    *,
    refresh: bool = False,
) -> Settings:
    """Make the bases of ``images`` that no registry provides; return the settings that use them.

    The engine pulls the base images that the matrix pins. If no registry answers, imgbuild makes
    Debian's base image from Debian's archive, and later commands use it. With ``refresh``, ask
    registries again, and make bases again from the current archive.

    CheckFailedError: a registry answers but does not provide the image.
    MachineError: the engine cannot be used, or the base cannot be made.
    """
    if refresh:
        settings = settings.remember_made(frozenset())
    needed = tuple(images)
    if any(image.architecture != "amd64" for image in needed):
        needed = with_build_images(needed, engine.version().platform)
    for image in {image.base_name: image for image in needed}.values():
        setting = settings.base_for(image.os_name, image.os.image)
        if setting.source == "bootstrap":
            bootstrap_base(image, settings, refresh=refresh, log=log)
        elif setting.image and _is_made_in_place(image, settings):
            silence = _pull(setting.image, image, engine, log)
            if silence:
                archive = f"{image.os.distribution.capitalize()}'s archive"
                log(
                    f"No registry answers ({silence}). Making the base image {image.base_name} "
                    f"from {archive} instead of {setting.image}; --refresh asks the registry again."
                )
                bootstrap_base(image, settings, refresh=refresh, log=log)
                settings = settings.remember_made(settings.made_here | {setting.image})
    return settings


def provide_base(
    image: Image, settings: Settings, base: Base, engine: Engine, log: Callable[[str], None]
) -> None:
    """Load or pull the base of an image into the engine.

    BuildKit itself pulls the bases that the settings name.

    CheckFailedError: a registry answers but does not provide the base.
    MachineError: the base was not made yet, or no registry answers.
    """
    require_made(base, image)
    if base.layout:
        load_base(base, engine)
    elif _is_made_in_place(image, settings):
        silence = _pull(base.reference, image, engine, log)
        if silence:
            raise MachineError(
                f"The base image {base.reference} cannot be pulled because no registry answers the "
                f"engine: {silence}. Configure a proxy or mirror in the engine, set `registry` in "
                f"imgbuild.local.yaml, or run `imgbuild doctor --write {image.name}` to make the "
                f"image from {image.os.distribution.capitalize()}'s archive."
            )


def load_base(base: Base, engine: Engine) -> None:
    """Load a base image from its OCI layout, unless the engine already has it under its name."""
    if base.layout is None:
        return
    stored = engine.inspect(base.reference)  # another image can have this name
    if stored and stored.id in base.engine_ids:
        return
    require_whole(base)
    with work_folder("base") as folder:
        archive = folder / "base.tar"
        write_archive(base.layout, archive)
        with archive.open("rb") as stream:
            engine.load(stream)


def require_whole(base: Base) -> None:
    """Read a whole layout, and raise if a digest is wrong.

    InputError: the layout is damaged. MachineError: a base that imgbuild made is damaged.
    """
    if base.layout is None:
        return
    try:
        read_layout(base.layout)
    except InputError as error:
        if base.origin != BOOTSTRAPPED:
            raise
        raise MachineError(f"{error} `imgbuild doctor --write` makes it again.") from error


def _is_made_in_place(image: Image, settings: Settings) -> bool:
    """Return whether imgbuild may make the image's base if no registry provides it."""
    return image.os.distribution in MADE_IN_PLACE and image.os_name not in settings.base


def _pull(reference: str, image: Image, engine: Engine, log: Callable[[str], None]) -> str:
    """Pull the image into the engine; return why no registry answers, or an empty text.

    CheckFailedError: a registry answers but does not provide the image.
    """
    stored = engine.inspect(reference)  # the reference can name a list of platforms
    if stored and stored.platform == image.platform:
        return ""
    log(f"pulling the base image {reference}")
    try:
        engine.pull(reference, pinned=True, platform=image.platform)
    except EngineUnusableError:
        raise
    except ImgbuildError as error:
        # Keep the engine's own words, without the request.
        said = without_advice(error).partition(": ")[2].strip(" .")
        fault = find_fault([said])
        if fault and fault.kind in _NO_ANSWER:
            return said
        raise CheckFailedError(
            f"The registry does not provide the base image {reference}: {said}. If it requires a "
            "login, use `docker login`. A mirror (settings: registry) must have this digest. To "
            f"make the image on this machine, set `base: {{{image.os_name}: {{from: bootstrap}}}}` "
            "in imgbuild.local.yaml and run `imgbuild doctor --write`."
        ) from error
    return ""
