"""What ``imgbuild push`` prints fits a terminal: tags are below their images, never cut."""

from dataclasses import replace

from published_images import RECORD

from imgbuild.cli.push_command import planned_lines, pushed_lines, result_json
from imgbuild.errors import CheckFailedError
from imgbuild.publish.push import PushedImage, PushResult

REPOSITORY = "registry.example.org/ml/tensorflow"
TAG = "1.12.0-cpu-py36-intelmpi2021.8.0-debian12-20261121.1"
MOVING = ("1.12.0-cpu-intelmpi-debian", "1.12-cpu-intelmpi-debian")
INTELMPI = replace(RECORD, image="tf-1.12-cpu-debian-intelmpi", tag=TAG, moving=MOVING)
STEPS = ("push", "record", *(f"move {tag}" for tag in MOVING))


def test_what_was_done_is_short_and_the_tags_are_below() -> None:
    result = PushResult(REPOSITORY, (PushedImage(INTELMPI, STEPS), PushedImage(RECORD)), {})
    assert pushed_lines(result) == [
        "image                        digest        MB    done",
        "tf-1.12-cpu-debian-intelmpi  222222222222  1235  pushed, recorded, moved 2 tags",
        f"  {TAG}",
        f"  {MOVING[0]} {MOVING[1]}",
        "tf-2.2-cpu-debian            222222222222  1235  up to date",
        "  2.2.0-cpu-py38-openmpi4.1.4-debian12-20261120.1 2.2.0-cpu-debian",
        "  2.2-cpu-debian",
        "1 published, 1 up to date.",
        f"docker pull {REPOSITORY}:{MOVING[1]}",
    ]


def test_what_a_newer_release_keeps_is_told_and_is_no_tag_of_the_image() -> None:
    left = f"{MOVING[1]} stays at {TAG.replace('20261121', '20261122')}"
    steps = ("record", f"move {MOVING[0]}")
    record = replace(INTELMPI, image=f"{INTELMPI.image}-as-documented")
    images = (PushedImage(INTELMPI, STEPS), PushedImage(RECORD, (), ("x",)))
    planned = planned_lines(PushResult(REPOSITORY, images, {}))
    tags = [f"  {TAG}", f"  {MOVING[0]} {MOVING[1]}"]
    assert planned[0] == f"to {REPOSITORY}:"
    assert planned[1:4] == ["tf-1.12-cpu-debian-intelmpi  push, record, move 2 tags", *tags]
    assert planned[4:] == ["tf-2.2-cpu-debian            up to date", f"  {RECORD.tag}", "  x"]
    errors = {"tf-x": CheckFailedError("no")}
    result = PushResult(REPOSITORY, (PushedImage(record, steps, (left,)),), errors)
    assert result_json(result, plan=False)["failed"] == {"tf-x": "no"}
    lines = pushed_lines(result)
    assert max(map(len, lines)) <= 80
    assert lines[:4] == [
        "image",
        "  digest        MB    done",
        record.image,
        "  222222222222  1235  recorded, moved 1 tag",
    ]
    assert lines[4:6] == [f"  {TAG}", f"  {MOVING[0]}"]
    assert " ".join(" ".join(lines[6:-2]).split()) == left
    assert lines[-2] == "1 published, 0 up to date, 1 failed."
