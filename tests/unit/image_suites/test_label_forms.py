"""The forms of labels: what every image has passes, and each fault is named."""

from __future__ import annotations

import pytest
from label_forms import contradictions, malformed

GOOD = {
    "org.opencontainers.image.title": "tf-2.2-cpu-debian",
    "org.opencontainers.image.version": "2.2.0",
    "org.opencontainers.image.created": "2026-11-01T00:00:00Z",
    "org.opencontainers.image.base.name": "imgbuild/base:debian-12-97c468ece3a3",
    "org.opencontainers.image.base.digest": f"sha256:{'0' * 64}",
    "org.opencontainers.image.source": "https://git.example/images",
    "org.opencontainers.image.revision": f"{'a' * 40}-dirty",
    "imgbuild.name": "tf-2.2-cpu-debian",
    "imgbuild.pin.tensorflow": "2.2.0",
    "imgbuild.input-digest": f"sha256:{'1' * 64}",
}


def test_good_labels_pass() -> None:
    assert malformed(GOOD) == []
    assert contradictions(GOOD) == []


@pytest.mark.parametrize(
    "name", ["org.opencontainers.image.created", "imgbuild.input-digest", "imgbuild.name"]
)
def test_a_missing_label_is_told(name: str) -> None:
    assert malformed({key: GOOD[key] for key in GOOD if key != name}) == [f"{name}: none"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("org.opencontainers.image.created", "2026-11-01"),
        ("org.opencontainers.image.version", "latest"),
        ("org.opencontainers.image.source", "https://robot:word@git.example/images"),
        ("org.opencontainers.image.revision", "main"),
        ("org.opencontainers.image.base.digest", "sha256:12"),
        ("org.opencontainers.image.base.name", ""),
        ("imgbuild.input-digest", "0" * 64),
    ],
)
def test_a_malformed_label_is_told(name: str, value: str) -> None:
    assert malformed({**GOOD, name: value}) == [f"{name}: {value!r}"]


def test_a_contradiction_is_told() -> None:
    found = contradictions({**GOOD, "org.opencontainers.image.version": "2.3.0"})
    assert found == ["org.opencontainers.image.version: 2.3.0, but imgbuild.pin.tensorflow: 2.2.0"]
