"""Print jobs in the formats that CI systems read: a function for each value of ``--format``.

`imgbuild.cli.matrix_command` has the names of the formats and calls these.
"""

import json
from collections.abc import Sequence
from typing import Any

from imgbuild.ci.jobs import Job, ListedImage
from imgbuild.errors import InputError

#: "A matrix will generate a maximum of 256 jobs per workflow run." Source: docs.github.com,
#: "Running variations of jobs in a workflow" and "Actions limits".
GITHUB_JOBS = 256
#: A hidden job that the pipeline's author writes: the jobs of a child pipeline extend it.
GITLAB_TEMPLATE = ".imgbuild"
#: A pipeline without a job is an error in GitLab, so an empty one has this.
GITLAB_NOTHING = "nothing to build"


def json_text(listed: Sequence[ListedImage]) -> str:
    """Return the images for programs."""
    return json.dumps([one.as_json() for one in listed], indent=2)


def github_text(jobs: Sequence[Job]) -> str:
    """Return a job matrix for ``fromJSON`` on one line, as ``$GITHUB_OUTPUT`` takes it.

    Raises:
        InputError: there are more jobs than GitHub runs.

    """
    if len(jobs) > GITHUB_JOBS:
        raise InputError(
            f"These are {len(jobs)} jobs, and a matrix of GitHub Actions generates at most "
            f'{GITHUB_JOBS} (docs.github.com, "Actions limits"). Put several images into a job '
            "with --shards N, or select fewer."
        )
    return json.dumps({"include": [_github(job) for job in jobs]}, separators=(",", ":"))


def _github(job: Job) -> dict[str, Any]:
    common = {"images": job.names, "names": job.options, "gpu": job.has_gpu}
    if job.sharded:
        return {"shard": job.label, **common}
    (image,) = job.images
    return {
        "name": image.name,
        "tensorflow": image.tensorflow,
        "variant": image.variant,
        "stack": image.stack,
        "mpi": image.mpi_name,
        **common,
    }


def gitlab_text(jobs: Sequence[Job]) -> str:
    """Return the jobs of a child pipeline, in YAML; each extends the author's ``.imgbuild``.

    They are no ``parallel:matrix``: that makes the variables part of a job's name, which may have
    255 characters, and takes 200 jobs at most. Source: docs.gitlab.com, "CI/CD YAML syntax
    reference", ``parallel:matrix``; gitlab-org/gitlab issues 584573 and 438369.
    """
    import yaml  # noqa: PLC0415 - for this format alone

    found = {_gitlab_name(job): _gitlab(job) for job in jobs} or {GITLAB_NOTHING: _GITLAB_NOTHING}
    return str(yaml.safe_dump(found, sort_keys=False, width=1_000_000)).rstrip("\n")


_GITLAB_NOTHING = {"extends": GITLAB_TEMPLATE, "script": ["true"]}


def _gitlab_name(job: Job) -> str:
    # "images 1/4" would be taken for the first of four equal jobs, and shown grouped with them.
    return f"shard {job.label.replace('/', ' of ')}" if job.sharded else job.label


def _gitlab(job: Job) -> dict[str, Any]:
    variables = {"IMGBUILD_IMAGES": job.names, "IMGBUILD_NAMES": job.options}
    gpu = {"IMGBUILD_GPU": "true" if job.has_gpu else "false"}
    return {"extends": GITLAB_TEMPLATE, "variables": {**variables, **gpu}}
