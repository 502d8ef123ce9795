"""Make the build targets of images."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from imgbuild.core.project import Project
from imgbuild.dockerfile.labels import (
    BASE,
    BASE_DIGEST,
    BASE_NAME,
    CPYTHON,
    INPUT_DIGEST,
    INPUT_PARTS,
    OCI,
    REPOSITORY,
    SNAPSHOT,
    STANDIN,
    SUBSTITUTES,
    text_labels,
)
from imgbuild.dockerfile.render import dockerfile_path
from imgbuild.engine.build import BuildTarget
from imgbuild.inputs.build_inputs import BuildInputs
from imgbuild.matrix.images import Image
from imgbuild.plan.changes import parts_label
from imgbuild.plan.plan import PlanItem

#: Stages whose name begins so hold Python packages and nothing of the system.
PACKAGES = "packages"
#: The stage in which they are installed.
INSTALLER = "installer"


def image_target(  # noqa: PLR0913 - what is built, from what, and by whom
    item: PlanItem,
    inputs: BuildInputs,
    downloads: Mapping[str, Path],
    project: Project,
    revision: str | None,
    *,
    in_engine: bool = True,
) -> BuildTarget:
    """Return what is built for ``item``, an image without any tag: see `stage_target`."""
    target = stage_target(item.image, None, inputs, downloads, project, in_engine=in_engine)
    return replace(target, labels=_make_labels(item, inputs, revision))


def stage_target(  # noqa: PLR0913 - likewise
    image: Image,
    stage: str | None,
    inputs: BuildInputs,
    downloads: Mapping[str, Path],
    project: Project,
    *,
    in_engine: bool = True,
) -> BuildTarget:
    """Return the target of one stage of an image, None for the last, without labels.

    ``downloads`` are the folders of its downloads by named context; ``in_engine`` is whether the
    builder is the engine's own, and has its images.
    """
    contexts = {**downloads} | ({"uv": inputs.uv} if inputs.uv else {})
    if image.apt_cuda and inputs.keyrings:
        contexts["keyrings"] = inputs.keyrings
    if dated := inputs.snapshots.get(image.os.distribution):
        contexts.setdefault("offline", dated)
    base = {"base": inputs.bases[image.os_name].context(in_engine=in_engine)}
    target = BuildTarget(
        name=image.name,
        context=project.root / "images",
        dockerfile=dockerfile_path(image, project.dockerfiles),
        contexts=base | {name: str(path) for name, path in contexts.items()},
        args=inputs.downloads[image.name].arguments,
        secrets=inputs.secrets,
        target=stage,
    )
    prefix = inputs.interpreters[image.version_of("python")].prefix
    return _with_prefix(target, image, prefix, project) if prefix else target


def _with_prefix(target: BuildTarget, image: Image, prefix: Path, project: Project) -> BuildTarget:
    """Return the target with a CPython of this machine in place of its stage `cpython`."""
    version, known = image.version_of("python"), target.contexts
    contexts = {name: known[name] for name in ("base", "offline") if name in known}
    made = BuildTarget(
        name=f"cpython-{version}-{image.os_name}",
        context=target.context,
        dockerfile=project.prefix_dockerfile,
        contexts={**contexts, "prefix": str(prefix)},
        args={"PYTHON": version.rpartition(".")[0]},
        secrets=target.secrets,
        output="",
    )
    contexts = {**known, "cpython": f"target:{made.name}"}
    return replace(target, contexts=contexts, needs=(made,))


def _make_labels(item: PlanItem, inputs: BuildInputs, revision: str | None) -> Mapping[str, str]:
    """Return the labels that the Dockerfile cannot know, such as that an input was substituted."""
    base = inputs.bases[item.image.os_name]
    interpreter = inputs.interpreters[item.image.version_of("python")]
    labels = {
        **text_labels(item.image),
        INPUT_DIGEST: item.digest.total,
        REPOSITORY: item.image.repository,
        INPUT_PARTS: parts_label(item.digest),
        BASE_NAME: base.reference.split("@")[0],
        BASE_DIGEST: base.digest or "",
        BASE: base.origin,
        CPYTHON: interpreter.origin,
    }
    substituted = inputs.downloads[item.image.name].arguments
    if substituted:
        labels[SUBSTITUTES] = ", ".join(sorted(substituted))
    if dated := inputs.snapshots.get(item.image.os.distribution):
        labels[f"{SNAPSHOT}{item.image.os.distribution}"] = dated.name
    if inputs.standin:
        labels[STANDIN] = inputs.standin
    if revision:
        labels[f"{OCI}.revision"] = revision
    server, home = map(os.environ.get, ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY"))
    if server and home:  # whose workflow builds it, which may be a fork
        source = f"{server}/{home}"
        pages = {"source": source, "url": source, "documentation": f"{source}/tree/main/docs"}
        labels |= {f"{OCI}.{name}": page for name, page in pages.items()}
    return labels
