"""``imgbuild test IMAGE``: which image of the matrix it must be, by its label."""

import pytest

from imgbuild.cli.test_command import expected_target
from imgbuild.core.errors import InputError
from imgbuild.dockerfile.labels import ADDED, NAME
from imgbuild.engine.types import StoredImage
from support.bench import NEW, Bench
from support.fake_engine import FakeEngine
from support.project_copy import ROOT, command


@pytest.mark.parametrize(
    ("labels", "facts"),
    [
        ({NAME: "tf-2.2-cpu-debian"}, {"gpu_runs"}),  # which a CPU image does not have
        ({NAME: "tf-9.9-cpu-debian"}, {"me/train:1", NAME, "tf-9.9-cpu-debian", "--tf"}),
        ({}, {"me/train:1", NAME, "--tf"}),
    ],
    ids=["known", "unknown", "none"],
)
def test_the_label_names_the_image(
    monkeypatch: pytest.MonkeyPatch, labels: dict[str, str], facts: set[str]
) -> None:
    engine = FakeEngine([StoredImage("sha256:1", ("me/train:1",), labels)])
    monkeypatch.setattr("imgbuild.engine.client.Engine", lambda _: engine)
    words = ("test", "me/train:1", "--suite", "gpu_runs", "--project", str(ROOT))
    with pytest.raises(InputError) as error:
        command(*words)
    assert {fact for fact in facts if fact in str(error.value)} == facts
    assert ("--tf" in str(error.value)) == ("--tf" in facts)


def test_packages_that_an_extension_added_are_expected(bench: Bench) -> None:
    labels = {NAME: NEW, ADDED: "keras==2.3.1 no-pin"}
    bench.engine.stored["sha256:1"] = StoredImage("sha256:1", ("me/train:1",), labels)
    image = next(image for image in bench.context.images if image.name == NEW)
    target = expected_target(image, bench.context, "me/train:1")
    assert target.expected["packages"]["keras"] == "2.3.1"
    assert "numpy" in target.expected["packages"]


def test_an_extension_is_tested_as_it_was_when_it_was_made(bench: Bench) -> None:
    """Otherwise results would count for something else than the push looks for."""
    bench.engine.stored["sha256:1"] = StoredImage("sha256:1", ("me/train:1",), {NAME: NEW})
    image = next(image for image in bench.context.images if image.name == NEW)
    bench.context.store.record_extension(
        "sha256:1", NEW, expected={"requested": {"keras": "2.3.1"}}
    )
    target = expected_target(image, bench.context, "me/train:1")
    assert target.expected["requested"] == {"keras": "2.3.1"}
