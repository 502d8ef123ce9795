"""What ``imgbuild push`` prints fits a terminal: tags are below their images, never cut."""

from dataclasses import replace

from published_images import RECORD

from imgbuild.cli.push_command import pushed_lines
from imgbuild.publish.push import PushedImage, PushResult

REPOSITORY = "registry.example.org/ml/tensorflow"
TAG = "1.12.0-cpu-py36-debian12-intelmpi2021.8.0-20261121.1"
MOVING = ("1.12-cpu-intelmpi", "1.12.0-cpu-intelmpi")
INTELMPI = replace(RECORD, image="tf-1.12-cpu-debian-intelmpi", tag=TAG, moving=MOVING)


def test_what_was_done_is_short_and_the_tags_are_below() -> None:
    result = PushResult(
        REPOSITORY, (PushedImage(INTELMPI, True, True, MOVING), PushedImage(RECORD)), {}
    )
    assert pushed_lines(result) == [
        "image                        digest        MB    done",
        "tf-1.12-cpu-debian-intelmpi  222222222222  1235  pushed, recorded, moved 2 tags",
        f"  {TAG} {MOVING[0]}",
        f"  {MOVING[1]}",
        "tf-2.2-cpu-debian            222222222222  1235  up to date",
        "  2.2.0-cpu-py38-debian12-openmpi4.1.4-20261120.1 2.2-cpu 2.2.0-cpu",
        "1 published, 1 up to date.",
        f"docker pull {REPOSITORY}:{MOVING[0]}",
    ]
