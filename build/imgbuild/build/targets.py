"""A plan item as a bake target: named contexts, labels and secrets. Pure."""

from collections.abc import Mapping
from pathlib import Path

from imgbuild.dockerfile.labels import INPUT_DIGEST, INPUT_PARTS, NAMESPACE, REPOSITORY, STANDIN
from imgbuild.dockerfile.render import dockerfile_path
from imgbuild.engine.bake import BakeTarget
from imgbuild.inputs.build_inputs import BuildInputs
from imgbuild.matrix.images import Image
from imgbuild.plan.changes import parts_label
from imgbuild.plan.plan import PlanItem
from imgbuild.project import Project


def bake_target(
    item: PlanItem,
    inputs: BuildInputs,
    supplies: Mapping[str, Path],
    project: Project,
    revision: str | None,
) -> BakeTarget:
    """Return what bake has to build for ``item``: an image without any name.

    ``supplies`` are the folders of its downloads by named context.
    """
    image = item.image
    return BakeTarget(
        name=image.name,
        context=project.root / "images",
        dockerfile=dockerfile_path(image, project.dockerfiles),
        contexts={**_contexts(image, inputs), **{k: str(v) for k, v in supplies.items()}},
        args=inputs.downloads[image.name].arguments,
        labels=_labels(item, inputs, revision),
        secrets=tuple(f"id={name},src={path}" for name, path in inputs.secrets.items()),
    )


def _contexts(image: Image, inputs: BuildInputs) -> Mapping[str, str]:
    contexts = {
        "base": f"docker-image://{inputs.bases[image.os_name].reference}",
        "uv": str(inputs.uv),
    }
    interpreter = inputs.interpreters[image.version_of("python")]
    if interpreter.context:
        contexts["cpython"] = str(interpreter.context)
    if image.cuda and inputs.keyrings:
        contexts["keyrings"] = str(inputs.keyrings)
    return contexts


def _labels(item: PlanItem, inputs: BuildInputs, revision: str | None) -> Mapping[str, str]:
    """Return what only this machine knows: a build with a substitute says so here."""
    base = inputs.bases[item.image.os_name]
    interpreter = inputs.interpreters[item.image.version_of("python")]
    labels = {
        INPUT_DIGEST: item.digest.total,
        REPOSITORY: item.image.repository,
        INPUT_PARTS: parts_label(item.digest),
        "org.opencontainers.image.base.name": base.reference.split("@")[0],
        "org.opencontainers.image.base.digest": base.digest or "",
        f"{NAMESPACE}.input.base": base.origin,
        f"{NAMESPACE}.input.cpython": interpreter.origin,
    }
    substituted = inputs.downloads[item.image.name].arguments
    if substituted:
        labels[f"{NAMESPACE}.input.substitutes"] = ", ".join(sorted(substituted))
    if inputs.standin:
        labels[STANDIN] = inputs.standin
    if revision:
        labels["org.opencontainers.image.revision"] = revision
    return labels
