"""Which stages install packages, read out of the Dockerfiles themselves."""

import pytest

from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import read_dockerfile
from imgbuild.inputs.install_stages import arguments, install_stages, plan_name, with_plan
from imgbuild.matrix.images import Image
from imgbuild.project import Project

DOCKERFILE = read_dockerfile("""\
FROM scratch AS offline

FROM base AS os
RUN --mount=type=bind,from=offline,target=/run/offline \\
    --mount=type=cache,id=x,target=/var/cache/apt,sharing=locked \\
    sh /run/apt-install \\
    'git' \\
    'tini'
RUN true

FROM os AS extra
RUN sh /run/apt-install 'xz-utils'

FROM scratch AS cpython
COPY --from=extra /out /

FROM os AS unused
RUN sh /run/apt-install 'nobody'

FROM os AS final
COPY --link --from=cpython / /
""")


def test_stages_that_install_and_are_needed() -> None:
    stages = install_stages(DOCKERFILE)
    assert [(s.name, s.parent, arguments(s)) for s in stages] == [
        ("os", "base", r"\ 'git' \ 'tini'"),
        ("extra", "os", "'xz-utils'"),
    ]
    assert [stage.name for stage in install_stages(DOCKERFILE, {"cpython"})] == ["os"]


def test_the_plan_is_made_where_the_packages_are_installed() -> None:
    text = with_plan(DOCKERFILE, install_stages(DOCKERFILE), "apt")
    assert text.startswith(DOCKERFILE.text)
    plan = text.removeprefix(DOCKERFILE.text)
    assert (
        plan
        == """
FROM base AS plan-os
RUN --mount=type=bind,from=offline,target=/run/offline \\
    sh /run/apt-install --plan /out/os \\
    'git' \\
    'tini'

FROM os AS plan-extra
RUN sh /run/apt-install --plan /out/extra 'xz-utils'

FROM scratch AS apt
COPY --from=plan-os /out /
COPY --from=plan-extra /out /
"""
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tf-2.2-cpu-debian", ["os", "binutils", "cpython-compiler", "compiler", "mpi"]),
        ("tf-2.2-cpu-ubuntu", ["os", "binutils", "compiler"]),
        ("tf-2.2-gpu-ubuntu", ["os", "cuda", "binutils", "compiler", "cuda-compiler"]),
    ],
)
def test_the_stages_of_the_family(
    images: dict[str, Image], project: Project, name: str, expected: list[str]
) -> None:
    """Every one that calls apt-install, however the templates come to be written."""
    text = render_dockerfile(images[name], project.templates)
    stages = install_stages(text)
    assert [stage.name for stage in stages] == expected
    assert len(stages) == text.text.count("sh /run/apt-install")
    planned = with_plan(text, stages, "apt")
    assert planned.count("--plan /out/") == len(stages)
    assert all(f"AS {plan_name(stage)}\n" in planned for stage in stages)
