"""What a checkout would build now, for telling its current images from the others."""

from pathlib import Path

from imgbuild.cleaning.images import Wanted
from imgbuild.inputs.build_inputs import Preparation, prepare_inputs
from imgbuild.matrix.images import all_images, as_documented, standin_image
from imgbuild.matrix.load import load_matrix
from imgbuild.plan.digest import input_digest
from imgbuild.project import Project, cache_dir
from imgbuild.settings import Settings


def wanted_images(project: Project, settings: Settings) -> Wanted:
    """Return the input digest of every image of the checkout's matrix.

    No base image is made for it.

    Raises:
        InputError: the matrix, a lock, a Dockerfile or the settings are wrong.
        MachineError: an input cannot be looked at.

    """
    family = all_images(load_matrix(project.matrix))
    images = (*family, *as_documented(family, each=False))
    look = Preparation(cache_dir(), Path("/dev/null"), project, lambda _: None, make=False)
    inputs = prepare_inputs(images, settings, look)
    own = [standin_image(image) if settings.standin else image for image in images]
    digests = {image.name: input_digest(image, inputs, project).total for image in own}
    return Wanted(own[0].repository, digests)
