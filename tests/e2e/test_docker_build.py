"""A committed Dockerfile is built by `docker build` alone, and the result passes suites.

Given are only upstreams that may not be reached: a base image and, in settings, an interpreter.
"""

from pathlib import Path

from imgbuild.build.bases import load_base
from imgbuild.build.context import BuildOptions, open_context
from imgbuild.build.targets import image_target
from imgbuild.engine.build import BuildTarget
from imgbuild.engine.client import Engine
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.selection import find_image
from support.checkout import COPY_REPOSITORY, Checkout

NAME = "tf-1.15-cpu-debian"
REFERENCE = f"{COPY_REPOSITORY}:by-docker-alone"


def _target(checkout: Checkout) -> BuildTarget:
    """Return what imgbuild gives the image, whose base the engine has."""
    image = find_image(load_matrix(checkout.project.matrix), NAME)
    with open_context(checkout.project, (image,), BuildOptions(), lambda _: None) as context:
        load_base(context.inputs.bases[image.os_name], context.engine)
        (item,) = context.plan(test=False)
        return image_target(item, context.inputs, {}, context.project, None)


def _docker_build(target: BuildTarget, checkout: Checkout, *words: str) -> None:
    secrets = [f"--secret=id={name},src={path}" for name, path in target.secrets.items()]
    checkout.printed("build", f"--file={target.dockerfile}", *secrets, *words, str(target.context))


def test_docker_builds_a_dockerfile_alone(
    checkout: Checkout, engine: Engine, tmp_path: Path
) -> None:
    target = _target(checkout)
    given = [f"--build-context=base={target.contexts['base']}"]
    for made in target.needs:  # the interpreter
        contexts = [f"--build-context={name}={place}" for name, place in made.contexts.items()]
        arguments = [f"--build-arg={name}={value}" for name, value in made.args.items()]
        _docker_build(made, checkout, *contexts, *arguments, f"--output={tmp_path}")
        given.append(f"--build-context=cpython={tmp_path}")
    try:
        _docker_build(target, checkout, *given, f"--tag={REFERENCE}")
        suites = ("--suite", "tensorflow", "--suite", "horovod")
        tested = checkout.run("test", REFERENCE, *suites)
        assert "passed" in tested.stdout
    finally:
        engine.untag(REFERENCE)
