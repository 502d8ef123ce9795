"""Releases: which are some, and which is the next."""

from datetime import date

import pytest

from imgbuild.core.errors import InputError
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.images import Image, planned_tags
from imgbuild.matrix.tags import LONGEST_RELEASE, RELEASE
from imgbuild.publish import existing
from imgbuild.publish.candidate import PushCandidate
from imgbuild.publish.existing import check_release, next_release, releases_in

TODAY = date(2026, 11, 20)


@pytest.mark.parametrize("text", ["20261120.1", "20261120.10", "20280229.9999", LONGEST_RELEASE])
def test_a_release_is_used_as_it_is_given(text: str) -> None:
    check_release(text)
    assert RELEASE.fullmatch(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "20261120", "20261120.0", "20261120.01", "20261120.10000", "2026-11-20.1"),
        *("20261131.1", "20270229.1", "00001120.1", "20261120.1\n", "20261120.-1"),
    ],
)
def test_what_is_no_release_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--release .*YYYYMMDD\.N"):
        check_release(text)


def test_next_release_is_the_first_free_one_of_the_day(
    images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    image, other = images["tf-2.2-cpu-debian"], images["tf-2.3-cpu-debian"]
    # The tenth of a day is later than the ninth.
    releases = ["20261119.12", "20261120.1", "20261120.2", "20261120.9", "20261120.10"]
    tags = [planned_tags(image, release).immutable for release in releases]
    mine, others = (PushCandidate(one, StoredImage("sha256:id"), "", {}) for one in (image, other))
    assert releases_in([*image.tags, *sorted(tags)], mine) == [*reversed(releases)]
    assert releases_in(tags, others) == []
    assert next_release(TODAY, releases) == "20261120.3"
    assert next_release(TODAY, releases[:1]) == "20261120.1"
    monkeypatch.setattr(existing, "MOST_A_DAY", 2)
    assert next_release(TODAY, releases[:2]) == "20261120.2"
    with pytest.raises(InputError, match="2026-11-20"):
        next_release(TODAY, releases)
