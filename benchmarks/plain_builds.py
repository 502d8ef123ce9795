"""An image's Dockerfile as a plain `docker buildx build`, with imgbuild's inputs."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from measure import IMGBUILD, run

from imgbuild.build.bases import load_base
from imgbuild.build.context import BuildOptions, open_context
from imgbuild.build.prepare import fetch_downloads
from imgbuild.build.targets import image_target
from imgbuild.core.project import Project
from imgbuild.dockerfile.render import template_environment
from imgbuild.dockerfile.variables import epoch_seconds, template_variables
from imgbuild.engine.build import BuildTarget
from imgbuild.matrix.images import Image

HERE = Path(__file__).resolve().parent


@contextmanager
def surroundings(env: Mapping[str, str]) -> Iterator[None]:
    """Give imgbuild's functions in this process the environment of a measured command."""
    before = dict(os.environ)
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def supplied(
    images: Sequence[Image], project: Project, env: Mapping[str, str]
) -> dict[str, BuildTarget]:
    """Return each image's build by its name, with everything brought that it needs.

    The base images are loaded into the engine that the settings of ``env`` name.
    """
    names = [image.name for image in images]
    run([IMGBUILD, "matrix", *names, "--make-bases"], env)
    with (
        surroundings(env),
        open_context(project, tuple(images), BuildOptions(), lambda _: None) as context,
    ):
        items = context.plan(test=False)
        for base in context.inputs.bases.values():
            load_base(base, context.engine)
        downloads, _ = fetch_downloads(images, context)
        return {
            item.image.name: image_target(
                item, context.inputs, downloads[item.image.name], project, None
            )
            for item in items
        }


def build_options(target: BuildTarget, image: Image) -> list[str]:
    """Return the options of ``docker buildx build`` for a target, its tags and outputs aside."""
    given = {**target.args, "SOURCE_DATE_EPOCH": str(epoch_seconds(image))}
    words = ["--builder=default", "--progress=plain", "--file", str(target.dockerfile.absolute())]
    for name, where in sorted(target.contexts.items()):
        words += ["--build-context", f"{name}={where}"]
    for name, value in sorted(given.items()):
        words += ["--build-arg", f"{name}={value}"]
    for name, path in target.secrets.items():
        words += ["--secret", f"id={name},src={path}"]
    return [*words, str(target.context.absolute())]


def one_stage(image: Image, target: BuildTarget, project: Project, folder: Path) -> BuildTarget:
    """Return the same image as one single-stage Dockerfile with pip, written to ``folder``."""
    template = template_environment(project.templates, HERE).get_template("one_stage.j2")
    text = template.render(template_variables(image, project.locks))
    dockerfile = folder / f"{image.name}.Dockerfile"
    dockerfile.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    return replace(target, dockerfile=dockerfile, labels={})
