"""Releases: which are some, and which is the next."""

from datetime import date

import pytest

from imgbuild.errors import InputError
from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import LONGEST_RELEASE, RELEASE, planned_tags
from imgbuild.publish import release
from imgbuild.publish.release import check_release, next_release

TODAY = date(2026, 11, 20)


@pytest.mark.parametrize("text", ["20261120.1", "20261120.10", "20280229.9999", LONGEST_RELEASE])
def test_a_release_is_used_as_it_is_given(text: str) -> None:
    assert check_release(text) == text
    assert RELEASE.fullmatch(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "20261120", "20261120.0", "20261120.01", "20261120.10000", "2026-11-20.1"),
        *("20261131.1", "20270229.1", "00001120.1", "20261120.1\n", "20261120.-1"),
    ],
)
def test_what_is_no_release_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"is no release; give YYYYMMDD\.N"):
        check_release(text)


def test_the_next_is_the_first_that_this_image_has_not(images: dict[str, Image]) -> None:
    image, other = images["tf-2.2-cpu-debian"], images["tf-2.3-cpu-debian"]
    yesterday = planned_tags(image, "20261119.1").immutable
    assert next_release(TODAY, [yesterday, *image.tags], image) == "20261120.1"
    tags = [planned_tags(image, f"20261120.{number}").immutable for number in (1, 2, 4)]
    assert next_release(TODAY, tags, image) == "20261120.3"
    assert next_release(TODAY, tags, other) == "20261120.1"
    both = [tags[0], planned_tags(other, "20261120.2").immutable]
    assert next_release(TODAY, both, image, other) == "20261120.3"


def test_a_day_has_an_end(images: dict[str, Image], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "MOST_A_DAY", 2)
    image = images["tf-2.2-cpu-debian"]
    tags = [planned_tags(image, f"20261120.{number}").immutable for number in (1, 2)]
    with pytest.raises(InputError, match=r"tf-2\.2-cpu-debian: 2026-11-20 has had all of its 2"):
        next_release(TODAY, tags, image)
