"""Build targets: their labels and contexts."""

import pytest

from imgbuild.dockerfile.labels import DESCRIPTIONS, NAMESPACE
from support.bench import INPUTS, NEW, Bench


def test_the_target_has_labels_and_the_secret(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://git.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/images")
    bench.build()
    target = next(target for target in bench.targets if target.name == NEW and not target.target)
    (python,) = target.needs
    assert target.secrets == python.secrets == INPUTS.secrets
    assert target.args == {"SHA256_X": "f" * 64}
    assert target.labels["imgbuild.input.substitutes"] == "SHA256_X"
    assert "imgbuild.standin" not in target.labels
    assert target.labels["imgbuild.input.cpython"] == "local prefix"
    assert target.labels["org.opencontainers.image.description"].startswith("TensorFlow 2.2.3 for")
    own = {label for label in target.labels if label.startswith(f"{NAMESPACE}.")}
    assert own <= DESCRIPTIONS.keys(), "the table in docs/contents.md has them all"
    source = "https://git.example/me/images"
    assert target.labels["org.opencontainers.image.source"] == source
    assert target.labels["org.opencontainers.image.documentation"] == f"{source}/tree/main/docs"
