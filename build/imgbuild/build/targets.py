"""Create the build targets of images."""

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
from imgbuild.engine.types import AMD64
from imgbuild.inputs.build_inputs import BUILD_BASE, BuildInputs
from imgbuild.matrix.images import Image
from imgbuild.plan.changes import parts_label
from imgbuild.plan.plan import PlanItem

#: Name prefix of the stages that hold only Python packages, no system files.
PACKAGES = "packages"
#: The stage that installs the Python packages.
INSTALLER = "installer"


def image_target(  # noqa: PLR0913 - the inputs of a build
    item: PlanItem,
    inputs: BuildInputs,
    downloads: Mapping[str, Path],
    project: Project,
    revision: str | None,
    *,
    in_engine: bool = True,
    machine: str = AMD64,
) -> BuildTarget:
    """Return the build target of ``item``, with labels and without tags; see `stage_target`."""
    target = stage_target(
        item.image, None, inputs, downloads, project, in_engine=in_engine, machine=machine
    )
    labels = _make_labels(item, inputs, revision)
    return replace(target, labels=labels)


def stage_target(  # noqa: PLR0913 - the inputs of a stage
    image: Image,
    stage: str | None,
    inputs: BuildInputs,
    downloads: Mapping[str, Path],
    project: Project,
    *,
    in_engine: bool = True,
    machine: str = AMD64,
) -> BuildTarget:
    """Return the build target of one stage, without labels; None means the last stage.

    ``downloads`` maps named contexts to the folders of the image's downloads. Set ``in_engine`` if
    the builder is the engine's own, because it can then use the engine's images. ``machine`` is the
    platform of the builder's machine.
    """
    folders = {**downloads}
    # uv runs on the processor that installs the packages.
    if uv := inputs.uv_for(machine if image.uses_build_machine else image.platform):
        folders["uv"] = uv
    if image.apt_cuda and inputs.keyrings:
        folders["keyrings"] = inputs.keyrings
    snapshot = inputs.snapshots.get(image.os.distribution)
    if snapshot:
        folders.setdefault("offline", snapshot)
    base = inputs.bases[image.base_name]
    contexts = {"base": base.context(in_engine=in_engine)}
    build_base = inputs.build_bases.get((machine, image.os_name))
    if build_base and image.uses_build_machine:
        contexts[BUILD_BASE] = build_base.context(in_engine=in_engine)
    for name, folder in folders.items():
        contexts[name] = str(folder)
    own_downloads = inputs.downloads[image.name]
    target = BuildTarget(
        name=image.name,
        context=project.root / "images",
        dockerfile=dockerfile_path(image, project.dockerfiles),
        contexts=contexts,
        args=own_downloads.arguments,
        secrets=inputs.secrets,
        target=stage,
        platform=image.platform,
    )
    interpreter = inputs.interpreters[image.version_of("python"), image.machine]
    if interpreter.prefix:
        return _with_prefix(target, image, interpreter.prefix, project)
    return target


def _with_prefix(target: BuildTarget, image: Image, prefix: Path, project: Project) -> BuildTarget:
    """Return the target with this machine's CPython instead of the stage `cpython`."""
    version = image.version_of("python")
    minor = version.rpartition(".")[0]
    contexts = {}
    for name in ("base", "offline"):
        if name in target.contexts:
            contexts[name] = target.contexts[name]
    contexts["prefix"] = str(prefix)
    interpreter = BuildTarget(
        name=f"cpython-{version}-{image.base_name}",
        context=target.context,
        dockerfile=project.prefix_dockerfile,
        contexts=contexts,
        args={"PYTHON": minor},
        secrets=target.secrets,
        output="",
        platform=target.platform,
    )
    contexts = {**target.contexts, "cpython": f"target:{interpreter.name}"}
    return replace(target, contexts=contexts, needs=(interpreter,))


def _make_labels(item: PlanItem, inputs: BuildInputs, revision: str | None) -> Mapping[str, str]:
    """Return the labels that depend on the build, for example on substituted inputs."""
    image, digest = item.image, item.digest
    base = inputs.bases[image.base_name]
    base_name = base.reference.split("@")[0]
    interpreter = inputs.interpreters[image.version_of("python"), image.machine]
    labels = {
        **text_labels(image),
        INPUT_DIGEST: digest.total,
        REPOSITORY: image.repository,
        INPUT_PARTS: parts_label(digest),
        BASE_NAME: base_name,
        BASE_DIGEST: base.digest or "",
        BASE: base.origin,
        CPYTHON: interpreter.origin,
    }
    downloads = inputs.downloads[image.name]
    if downloads.arguments:
        labels[SUBSTITUTES] = ", ".join(sorted(downloads.arguments))
    distribution = image.os.distribution
    snapshot = inputs.snapshots.get(distribution)
    if snapshot:
        labels[f"{SNAPSHOT}{distribution}"] = snapshot.name
    if inputs.standin:
        labels[STANDIN] = inputs.standin
    if revision:
        labels[f"{OCI}.revision"] = revision
    server = os.environ.get("GITHUB_SERVER_URL")
    repository = os.environ.get("GITHUB_REPOSITORY")
    if server and repository:  # the repository of the running workflow, which may be a fork
        source = f"{server}/{repository}"
        labels[f"{OCI}.source"] = source
        labels[f"{OCI}.url"] = source
        labels[f"{OCI}.documentation"] = f"{source}/tree/main/docs"
    return labels
