"""The images as a bake definition that ``docker buildx bake`` reads, as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from imgbuild.build.revision import git_revision
from imgbuild.build.shared_stages import share_packages
from imgbuild.build.targets import bake_target
from imgbuild.ci.listed import Job, Listed
from imgbuild.dockerfile.labels import INPUT_DIGEST, INPUT_PARTS
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.engine.bake import BakeTarget, bake_definition
from imgbuild.engine.progress import bake_name
from imgbuild.matrix.images import standin_image
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.inputs import BuildInputs
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.project import Project

#: A named context without it: the base image of a machine that has not made it yet.
_NO_IMAGE = "docker-image://"


def bake_text(
    listed: Sequence[Listed],
    jobs: Sequence[Job],
    digests: Mapping[str, InputDigest],
    inputs: BuildInputs,
    project: Project,
) -> str:
    """Return the definition that a build here writes, but for what it fetches first.

    Nothing has a name: an image gets its names when its suites have passed.
    Each image is a target, each shard a group ``shard-1-of-4``, and all of them ``default``.
    Downloads and kept wheels are no contexts of it: docs/guide.md says what that means.
    """
    revision = git_revision(project.root)
    own = [_target(one, digests[one.image.name], inputs, project, revision) for one in listed]
    targets = share_packages(own, {one.image.name: one.image.stack for one in listed})
    epoch = epoch_seconds(listed[0].image) if listed else None
    definition: dict[str, dict[str, Any]] = {**bake_definition(targets, epoch)}
    definition["group"] = {**definition["group"], **_groups(jobs)}
    # Bake takes a section that is not there, and none that is empty.
    return json.dumps({name: section for name, section in definition.items() if section}, indent=2)


def _target(
    one: Listed, digest: InputDigest, inputs: BuildInputs, project: Project, revision: str | None
) -> BakeTarget:
    image = standin_image(one.image) if inputs.standin else one.image
    item = PlanItem(image, digest, Action.BUILD, one.reason)
    target = bake_target(item, inputs, {}, project, revision)
    unknown = () if one.digest else (INPUT_DIGEST, INPUT_PARTS)
    return replace(
        target,
        contexts={name: where for name, where in target.contexts.items() if where != _NO_IMAGE},
        labels={n: value for n, value in target.labels.items() if value and n not in unknown},
    )


def _groups(jobs: Sequence[Job]) -> dict[str, dict[str, list[str]]]:
    return {
        f"shard-{job.label.replace('/', '-of-')}": {
            "targets": sorted(bake_name(image.name) for image in job.images)
        }
        for job in jobs
        if job.sharded
    }
