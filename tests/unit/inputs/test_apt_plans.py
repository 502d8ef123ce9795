"""Which stages install packages, read out of the Dockerfiles, and how each is planned."""

import pytest

from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.inputs.fetched import install_stages, packages
from imgbuild.inputs.upstream_files import plan_name, with_plans
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import Settings

DOCKERFILE = Dockerfile("""\
FROM base AS os
RUN --mount=type=bind,from=offline,target=/run/offline \\
    --mount=type=cache,id=x,target=/var/cache/apt,sharing=locked \\
    sh /run/apt/install \\
    'git' \\
    'tini'
RUN true

FROM os AS extra
RUN sh /run/apt/install 'xz-utils'
""")
PLANS = """
FROM base AS plan-os
RUN echo 'Acquire::GzipIndexes "false";' > /etc/apt/apt.conf.d/zz-plain-lists
RUN --mount=type=bind,from=offline,target=/run/offline \\
    timeout 900 sh /run/apt/install --plan /out/os \\
    'git' \\
    'tini'

FROM os AS plan-extra
RUN echo 'Acquire::GzipIndexes "false";' > /etc/apt/apt.conf.d/zz-plain-lists
RUN timeout 900 sh /run/apt/install --plan /out/extra 'xz-utils'

FROM scratch AS apt
COPY --from=plan-os /out /
COPY --from=plan-extra /out /
"""


def test_the_plan_is_made_where_the_packages_are_installed() -> None:
    stages = [*DOCKERFILE.stages.values()]
    assert [packages(stage) for stage in stages] == [r"\ 'git' \ 'tini'", "'xz-utils'"]
    assert with_plans(DOCKERFILE, stages, "apt") == DOCKERFILE.text + PLANS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tf-2.2-cpu-debian", ["os", "cpython-build", "installer", "compiler", "mpi"]),
        ("tf-2.2-cpu-ubuntu", ["os", "installer", "compiler"]),
        ("tf-2.12-cpu-debian", ["system", "system-python", "installer", "compiler", "mpi"]),
        ("tf-2.2-gpu-ubuntu", ["os", "cuda", "installer", "compiler", "cuda-compiler"]),
    ],
)
def test_the_stages_of_the_family(
    images: dict[str, Image], project: Project, name: str, expected: list[str]
) -> None:
    """Every one that calls apt/install, however the templates come to be written."""
    image = images[name]
    rendered = render_dockerfile(image, project.templates)
    stages = install_stages(image, project, Settings())
    assert [stage.name for stage in stages] == expected
    # But that of uv, in whose place every build puts something.
    installs = rendered.text.count("sh /run/apt/install") - 1
    planned = with_plans(rendered, stages, "apt")
    assert planned.count("--plan /out/") == installs
    assert all(f"AS {plan_name(stage)}\n" in planned for stage in stages)
    # A plan runs the whole instruction and installs nothing: what follows may only be planned, too.
    following = [command for stage in stages for command in packages(stage).split(" && ")[1:]]
    assert all(command.startswith("sh /run/apt/install ") for command in following)


def test_a_local_prefix_has_its_own_stages(images: dict[str, Image], project: Project) -> None:
    prefix = {"cpython": {"3.6.15": {"from": "prefix", "path": "/opt/python"}}}
    settings = Settings.model_validate(prefix)
    stages = install_stages(images["tf-2.2-cpu-debian"], project, settings)
    names = [stage.name for stage in stages]
    assert "cpython-build" not in names
    assert len(names) == 5
