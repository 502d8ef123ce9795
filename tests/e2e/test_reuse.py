"""A real engine reuses a kept wheel, and published images if the repository can be read.

The wheel is no Horovod, but it comes out of the stage that Horovod's wheel comes from.
"""

import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.build.bases import load_base
from imgbuild.build.context import BuildOptions, open_context
from imgbuild.build.image_build import export_stage
from imgbuild.engine.build import BuildTarget
from imgbuild.engine.client import Engine
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.selection import find_image
from support.checkout import Checkout
from support.copied_checkout import remove_images
from support.own_registry import free_port
from support.publishing_project import ONE, PublishingProject, publishing_project

REPOSITORY = "imgbuild-reuse/tensorflow"
WHEEL = "horovod-0.0.0-py3-none-any.whl"
_TEMPLATE = f"""\
FROM base AS os
FROM os AS compiled
COPY files/{WHEEL} /
RUN --network=none echo the wheel is compiled
FROM scratch AS horovod-wheel
COPY --from=compiled /{WHEEL} /
FROM os AS final
RUN --network=none head -c 60000 /dev/urandom > /bytes
RUN --network=none --mount=type=bind,from=horovod-wheel,target=/run/wheels ls /run/wheels > /wheels
ENV WORD=first
"""
#: Its first stage makes something else each time that it runs.
_ANEW = """\
FROM base AS made
RUN --network=none mkdir /out && cp /proc/sys/kernel/random/uuid /out/
FROM scratch AS exported
COPY --from=made /out /
"""


@pytest.fixture
def project(tmp_path: Path, host: str | None, engine: Engine) -> Iterator[PublishingProject]:
    """Give a checkout of one image, on a machine with a cache with a base image at most."""
    made = publishing_project(tmp_path, host, local=REPOSITORY, template=_TEMPLATE)
    with zipfile.ZipFile(made.root / "images" / "files" / WHEEL, "w") as wheel:
        wheel.writestr("horovod-0.0.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    made.render()
    remove_images(engine, REPOSITORY)
    yield made
    remove_images(engine, REPOSITORY)


def test_wheel_is_compiled_once(project: PublishingProject) -> None:
    project.run("build", *ONE, timeout=300)
    assert "the wheel is compiled" in project.log()
    assert project.cache
    (wheel,) = project.cache.rglob(WHEEL)
    assert "horovod-wheels" in wheel.as_posix()
    later = replace(project, state=project.state.parent / "later")
    later.say("second")  # another image with the same wheel
    (outcome,) = later.json("build", *ONE, timeout=300)
    assert (outcome["action"], outcome["state"]) == ("build", "done")
    assert "ls /run/wheels" in later.log()
    assert "the wheel is compiled" not in later.log()


def test_repository_that_is_not_there_ends_no_build(
    project: PublishingProject, engine: Engine
) -> None:
    repository = f"127.0.0.1:{free_port()}/ml/tensorflow"
    project.set_up(publishing={"attempts": 1})
    said = project.run("build", *ONE, "--pull", "--from", repository, timeout=300).stderr
    assert said.count(f"The repository {repository} cannot be read") == 1, said
    assert engine.find_named(REPOSITORY)


def test_stage_that_is_built_anew_is_exported_anew(checkout: Checkout, tmp_path: Path) -> None:
    """BuildKit would export a cached copy of the stage's first result."""
    image = find_image(load_matrix(checkout.project.matrix), "tf-1.10-cpu-debian")
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(_ANEW, encoding="utf-8")
    with open_context(checkout.project, (image,), BuildOptions(), lambda _: None) as context:
        base = context.inputs.bases[image.os_name]
        load_base(base, context.engine)
        target = BuildTarget(
            "anew",
            tmp_path,
            dockerfile,
            contexts={"base": base.context()},
            target="exported",
            uncached=("made",),
        )
        for folder in ("first", "second"):
            export_stage(target, tmp_path / folder, context)
    assert (tmp_path / "first" / "uuid").read_text() != (tmp_path / "second" / "uuid").read_text()
