"""``imgbuild test --image``: which image of the matrix it must be, by its label."""

import pytest
import typer
from conftest import ROOT
from fake_engine import FakeEngine
from typer.testing import CliRunner

from imgbuild.cli.test_command import test as command
from imgbuild.dockerfile.labels import NAME
from imgbuild.engine.types import StoredImage
from imgbuild.errors import InputError


@pytest.mark.parametrize(
    ("labels", "facts"),
    [
        ({NAME: "tf-2.2-cpu-debian"}, ("gpu_runs",)),  # which a CPU image does not have
        ({NAME: "tf-9.9-cpu-debian"}, ("me/train:1", NAME, "tf-9.9-cpu-debian", "--expect")),
        ({}, ("me/train:1", NAME, "--tf", "--expect")),
    ],
)
def test_the_label_names_the_image(
    monkeypatch: pytest.MonkeyPatch, labels: dict[str, str], facts: tuple[str, ...]
) -> None:
    engine = FakeEngine([StoredImage("sha256:1", ("me/train:1",), labels)])
    monkeypatch.setattr("imgbuild.engine.client.Engine", lambda _: engine)
    app = typer.Typer()
    app.command()(command)
    words = ("--image", "me/train:1", "--suite", "gpu_runs", "--project", str(ROOT))
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, InputError)
    assert [fact for fact in facts if fact not in str(error)] == []
    assert ("--expect" in str(error)) == ("--expect" in facts)
