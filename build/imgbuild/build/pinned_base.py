"""Give the engine the base images that the matrix pins, or make them here."""

from collections.abc import Iterable
from dataclasses import replace

from imgbuild.build.context import BuildContext
from imgbuild.engine.failure import find_fault
from imgbuild.engine.faults import DOCTOR, EngineUnusableError
from imgbuild.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.inputs.base import MADE_IN_PLACE, find_base, missing_packages
from imgbuild.inputs.build_inputs import base_recipe, prepare_inputs
from imgbuild.matrix.images import Image
from imgbuild.settings import RegistryBase

#: The kinds of `BuildFault` by which a registry did not answer at all.
_NO_ANSWER = ("certificate", "unreachable")


def with_pinned_bases(images: Iterable[Image], context: BuildContext) -> BuildContext:
    """Let the engine have the base images of ``images`` that can be made here as well.

    Return the context. Where no registry answers, it is that of the base image made here, which is
    another input; later commands take the same. What the settings name is left to the build.

    CheckFailedError: a registry answers and does not give the image.
    MachineError: none answers, and the image cannot be made here.
    """
    for image in {one.os_name: one for one in images}.values():
        settings = context.settings
        base = settings.base_for(image.os_name, image.os.image)
        if (
            image.os_name in settings.base
            or image.os.distribution not in MADE_IN_PLACE
            or not isinstance(base, RegistryBase)
        ):
            continue
        if why := _pull(base.image, image, context):
            archive = f"{image.os.distribution.capitalize()}'s archive"
            context.say(
                f"No registry answers ({why}): {archive} gives the base image {image.os_name} in "
                f"place of {base.image}, until --refresh-base."
            )
            made = settings.with_made(base.image)
            options = (context.say, True, context.options.refresh_base)
            inputs = prepare_inputs(context.images, made, context.project, *options)
            made.remember_made()
            context = replace(context, settings=made, inputs=inputs)
    return context


def _pull(reference: str, image: Image, context: BuildContext) -> str:
    """Let the engine have the image; return why no registry answers, or nothing."""
    if context.engine.inspect(reference):
        return ""
    context.say(f"pulling the base image {reference}")
    try:
        context.engine.pull(reference)
    except EngineUnusableError:
        raise
    except ImgbuildError as error:
        # The engine's own words, without what it was asked.
        said = str(error).removesuffix(DOCTOR).partition(": ")[2].strip(" .")
        fault = find_fault([said])
        bootstrap = f"base: {{{image.os_name}: {{from: bootstrap}}}}"
        if fault is None or fault.kind not in _NO_ANSWER:
            raise CheckFailedError(
                f"The registry does not give the base image {reference}: {said}. If it wants a "
                "login, use `docker login`; if it is a mirror (settings: registry), it must have "
                f"this digest. `{bootstrap}` in imgbuild.local.yaml makes the image here."
            ) from error
        lacking = missing_packages(image.os.distribution)
        if lacking and not find_base(base_recipe(image), context.cache):
            raise MachineError(
                f"The base image {reference} cannot be pulled, since no registry answers the "
                f"engine: {said}. Let it reach one (a proxy or mirror of the engine, or the prefix "
                "`registry` in imgbuild.local.yaml), or let imgbuild make the image from the "
                f"archive: `sudo apt-get install -y {' '.join(lacking)}`."
            ) from error
        return said
    return ""
