"""What a list of jobs says of its images: whether one needs a GPU, and its digest."""

import json

from imgbuild.ci.changed import CheckoutDigests
from imgbuild.ci.jobs import Job, JobList, github_text
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputDigest


def test_one_image_for_gpus_is_enough(images: dict[str, Image]) -> None:
    cpu, gpu = images["tf-2.2-cpu-debian"], images["tf-2.2-gpu-ubuntu"]
    jobs = (Job((cpu,), "1/3"), Job((cpu, gpu), "2/3"), Job((gpu,), "3/3"))
    listed = json.loads(github_text(JobList((), jobs)))["include"]
    assert [one["gpu"] for one in listed] == [False, True, True]


def test_an_image_whose_base_is_not_made_yet_has_no_digest_to_tell() -> None:
    """The recipe stands in its place: a build will find another one."""
    digests = {"a": InputDigest("sha256:a", {}), "b": InputDigest("sha256:b", {})}
    found = CheckoutDigests({}, digests, {}, frozenset({"b"}))
    assert (found.exact("a"), found.exact("b")) == ("sha256:a", None)
