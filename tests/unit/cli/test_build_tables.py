"""The table at the end of a build, and what the display is told of each image."""

from dataclasses import replace

import pytest

from imgbuild.build.outcome import Outcome
from imgbuild.cli.build_run import _state
from imgbuild.cli.build_tables import outcome_lines
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.results import Report, SuiteResult, TestFailure

NAMES = tuple(f"tf-{minor}-cpu-debian" for minor in ("1.10", "1.11", "2.1", "2.2"))


def outcome(image: Image, action: Action = Action.BUILD, **more: object) -> Outcome:
    item = PlanItem(image, InputDigest("digest", {}), action, "reason")
    made = Outcome(item, "sha256:1", 10**9, 245.0, 70.0, report(image.name), named=True)
    return replace(made, **more)  # type: ignore[arg-type]


def report(name: str, *, fails: bool = False) -> Report:
    failures = (TestFailure("test_x", "no"),) if fails else ()
    suites = (SuiteResult("pins", 1, (), (), 1.0), SuiteResult("horovod", 1, failures, (), 1.0))
    return Report(name, "sha256:1", "code", suites)


def rows(outcomes: list[Outcome], planned: int | None = None) -> list[str]:
    return outcome_lines(outcomes, planned or len(outcomes)).splitlines()


def test_one_image_has_a_row_with_its_suites(images: dict[str, Image]) -> None:
    header, row = rows([outcome(images[NAMES[0]])])
    assert header.split() == ["image", "verdict", "done", "time", "size", "suites"]
    expected = "named built, tested 4m05s + 1m10s 1000 MB pins passed, horovod passed"
    assert " ".join(row.split()) == f"{NAMES[0]} {expected}"


def test_many_images_have_their_suites_in_brief_and_totals(images: dict[str, Image]) -> None:
    chosen = [images[name] for name in NAMES]
    bad = report(NAMES[1], fails=True)
    made = [
        outcome(chosen[0]),
        outcome(chosen[1], report=bad, named=False, error="horovod: test_x"),
        outcome(chosen[2], Action.NOTHING, report=None, build_seconds=0.0, test_seconds=0.0),
        outcome(chosen[3], image_id=None, report=None, named=False, error="no", size=0),
    ]
    _, good, failed, idle, broken, totals = rows(made)
    assert good.endswith("  2 passed")
    assert failed.endswith("  horovod FAILED, 1 passed")
    assert idle.split() == [NAMES[2], "up", "to", "date", "1000", "MB"]
    assert broken.split()[:2] == [NAMES[3], "failed"]
    assert "built" not in broken
    assert totals == "4 images: 1 named, 1 suites failed, 1 up to date, 1 failed."


def test_what_was_not_begun_is_said(images: dict[str, Image]) -> None:
    assert rows([outcome(images[NAMES[0]])], 3)[-1].startswith("2 images were not begun")


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, "named"),
        ({"named": False, "error": "horovod: test_x"}, "failed"),
        ({"named": False, "error": "cancelled, since b failed"}, "cancelled"),
    ],
)
def test_the_display_shows_what_became_of_an_image(
    images: dict[str, Image], change: dict[str, object], state: str
) -> None:
    assert _state(outcome(images[NAMES[0]], Action.BUILD, **change)) == state
