"""Make the base images that no registry gives before anything is planned; give them to engines."""

from collections.abc import Callable, Iterable

from imgbuild.core.errors import CheckFailedError, ImgbuildError, InputError, MachineError
from imgbuild.core.files import work_folder
from imgbuild.core.settings import Settings
from imgbuild.engine.client import Engine
from imgbuild.engine.failure import find_fault
from imgbuild.engine.faults import DOCTOR, EngineUnusableError
from imgbuild.inputs.base import BOOTSTRAPPED, Base, require_made
from imgbuild.inputs.bootstrap import MADE_IN_PLACE, bootstrap_base
from imgbuild.inputs.oci_layout import read_layout, write_archive
from imgbuild.matrix.images import Image

#: The kinds of `BuildFault` by which a registry did not answer at all.
_NO_ANSWER = ("certificate", "unreachable")


def make_bases(
    images: Iterable[Image],
    settings: Settings,
    engine: Engine,
    log: Callable[[str], None],
    *,
    refresh: bool = False,
) -> Settings:
    """Make the bases of ``images`` that no registry gives; return the settings that use them.

    The engine pulls an image that the matrix pins. If no registry answers, Debian's is made from
    the archive in its place, and later commands use it. With ``refresh`` registries are asked
    again, and bases are made again from the archive's state of now.

    CheckFailedError: a registry answers and does not give the image.
    MachineError: the engine cannot be used, or the base cannot be made.
    """
    if refresh:
        settings = settings.remember_made(frozenset())
    for image in {image.os_name: image for image in images}.values():
        setting = settings.base_for(image.os_name, image.os.image)
        if setting.source == "bootstrap":
            bootstrap_base(image, settings, refresh=refresh, log=log)
        elif setting.image and _is_made_in_place(image, settings):
            silence = _pull(setting.image, image.os_name, engine, log)
            if silence:
                archive = f"{image.os.distribution.capitalize()}'s archive"
                log(
                    f"No registry answers ({silence}): {archive} gives the base image "
                    f"{image.os_name} in place of {setting.image}, until --refresh-base."
                )
                bootstrap_base(image, settings, refresh=refresh, log=log)
                settings = settings.remember_made(settings.made_here | {setting.image})
    return settings


def provide_base(
    image: Image, settings: Settings, base: Base, engine: Engine, log: Callable[[str], None]
) -> None:
    """Let the engine have the base of an image; BuildKit pulls those that the settings name.

    CheckFailedError: a registry answers and does not give it.
    MachineError: it was not made yet, or no registry answers.
    """
    require_made(base, image.os_name)
    if base.layout:
        load_base(base, engine)
    elif _is_made_in_place(image, settings):
        silence = _pull(base.reference, image.os_name, engine, log)
        if silence:
            raise MachineError(
                f"The base image {base.reference} cannot be pulled, since no registry answers the "
                f"engine: {silence}. Let it reach one (a proxy or mirror of the engine, or the "
                "prefix `registry` in imgbuild.local.yaml), or let `imgbuild doctor --write` make "
                f"the image from {image.os.distribution.capitalize()}'s archive."
            )


def load_base(base: Base, engine: Engine) -> None:
    """Give the engine a base image that is a layout, unless it has it under its name."""
    if base.layout is None:
        return
    stored = engine.inspect(base.reference)  # any image can have that name
    if stored and stored.id in base.engine_ids:
        return
    require_whole(base)
    with work_folder("base") as folder:
        archive = folder / "base.tar"
        write_archive(base.layout, archive)
        with archive.open("rb") as stream:
            engine.load(stream)


def require_whole(base: Base) -> None:
    """Read all of a layout, and raise unless each digest is right."""
    if base.layout is None:
        return
    try:
        read_layout(base.layout)
    except InputError as error:
        if base.origin != BOOTSTRAPPED:
            raise
        raise MachineError(f"{error} `imgbuild doctor --write` makes it again.") from error


def _is_made_in_place(image: Image, settings: Settings) -> bool:
    """Return whether the image's base may be made here if no registry gives the matrix's."""
    return image.os.distribution in MADE_IN_PLACE and image.os_name not in settings.base


def _pull(reference: str, os_name: str, engine: Engine, log: Callable[[str], None]) -> str:
    """Let the engine have the image; return why no registry answers, or nothing.

    CheckFailedError: a registry answers and does not give it.
    """
    if engine.inspect(reference):
        return ""
    log(f"pulling the base image {reference}")
    try:
        engine.pull(reference, pinned=True)
    except EngineUnusableError:
        raise
    except ImgbuildError as error:
        # The engine's own words, without what it was asked.
        said = str(error).removesuffix(DOCTOR).partition(": ")[2].strip(" .")
        fault = find_fault([said])
        if fault and fault.kind in _NO_ANSWER:
            return said
        raise CheckFailedError(
            f"The registry does not give the base image {reference}: {said}. If it wants a login, "
            "use `docker login`; if it is a mirror (settings: registry), it must have this digest. "
            f"`base: {{{os_name}: {{from: bootstrap}}}}` in imgbuild.local.yaml and `imgbuild "
            "doctor --write` make the image here."
        ) from error
    return ""
