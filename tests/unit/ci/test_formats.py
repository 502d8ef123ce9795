"""Jobs as GitHub, GitLab and programs read them."""

import json

import pytest
import yaml

from imgbuild.ci.jobs import (
    GITHUB_JOBS,
    Job,
    JobList,
    ListedImage,
    github_text,
    gitlab_text,
    json_text,
)
from imgbuild.errors import InputError
from imgbuild.matrix.images import Image

CPU, GPU, OTHER = "tf-2.2-cpu-debian", "tf-2.2-gpu-ubuntu", "tf-2.2-cpu-debian-intelmpi"


NOTHING = JobList((), ())


@pytest.fixture
def single(images: dict[str, Image]) -> JobList:
    return JobList((), tuple(Job((images[name],)) for name in (CPU, GPU, OTHER)))


@pytest.fixture
def sharded(images: dict[str, Image]) -> JobList:
    return JobList((), (Job((images[CPU], images[OTHER]), "1/4"), Job((images[GPU],), "2/4")))


def test_json_says_all_that_is_known(images: dict[str, Image]) -> None:
    one = ListedImage(images[CPU], None, "changed: pin git 1 → 2", "1/4")
    assert json.loads(json_text(JobList((one,), ()))) == [
        {
            "name": CPU,
            "tensorflow": "2.2.0",
            "variant": "cpu",
            "stack": "debian",
            "mpi": images[CPU].mpi_name,
            "input_digest": None,
            "reason": "changed: pin git 1 → 2",
            "shard": "1/4",
        }
    ]
    assert "shard" not in ListedImage(images[CPU], None, "").as_json()
    assert json_text(NOTHING) == "[]"
    assert github_text(NOTHING) == '{"include":[]}'
    # GitLab takes no pipeline without a job.
    nothing = {"nothing to build": {"extends": ".imgbuild", "script": ["true"]}}
    assert yaml.safe_load(gitlab_text(NOTHING)) == nothing


def test_github_has_one_entry_an_image_on_one_line(single: JobList) -> None:
    text = github_text(single)
    assert "\n" not in text
    assert json.loads(text)["include"][1] == {
        "name": GPU,
        "tensorflow": "2.2.0",
        "variant": "gpu",
        "stack": "ubuntu",
        "mpi": "openmpi-3.1.2",
        "images": GPU,
        "names": f"--name {GPU}",
        "gpu": True,
    }


def test_github_has_one_entry_a_shard(sharded: JobList) -> None:
    assert json.loads(github_text(sharded))["include"] == [
        {
            "shard": "1/4",
            "images": f"{CPU} {OTHER}",
            "names": f"--name {CPU} --name {OTHER}",
            "gpu": False,
        },
        {"shard": "2/4", "images": GPU, "names": f"--name {GPU}", "gpu": True},
    ]


def test_more_jobs_than_github_runs(images: dict[str, Image]) -> None:
    jobs = (Job((images[CPU],)),) * GITHUB_JOBS
    assert len(json.loads(github_text(JobList((), jobs)))["include"]) == 256
    with pytest.raises(InputError, match=r"257 jobs.*at most 256.*--shards N"):
        github_text(JobList((), (*jobs, jobs[0])))


def test_gitlab_has_one_job_an_image_or_a_shard(single: JobList, sharded: JobList) -> None:
    assert [*yaml.safe_load(gitlab_text(single))] == [CPU, GPU, OTHER]
    found = yaml.safe_load(gitlab_text(sharded))
    assert found["shard 1 of 4"] == {
        "extends": ".imgbuild",
        "variables": {
            "IMGBUILD_IMAGES": f"{CPU} {OTHER}",
            "IMGBUILD_NAMES": f"--name {CPU} --name {OTHER}",
            "IMGBUILD_GPU": "false",
        },
    }
    assert found["shard 2 of 4"]["variables"]["IMGBUILD_GPU"] == "true"
