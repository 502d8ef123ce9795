"""Whose signatures count, and of which images; what cosign itself says is tried in tests/e2e."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from imgbuild.registry.signing import Trust, require_trusted, trust_of
from imgbuild.settings import Settings

KEY = {"verify": {"key": "/etc/cosign.pub"}}
NAMED = {"identity": "me@example.org", "issuer": "https://issuer.example"}
OWN, OTHER = "r.example/ml/tf@sha256:" + "1" * 64, "r.example/ml/t@sha256:" + "2" * 64


@pytest.mark.parametrize(
    ("reference", "digests", "asked"),
    [
        ("r.example/ml/tf:2.2-cpu", [OWN, OTHER], [OWN]),
        (OWN, [OWN], [OWN]),
        ("imgbuild/tensorflow:2.2-cpu", [OTHER], []),
        ("imgbuild/tensorflow:2.2-cpu", [], []),
    ],
)
def test_an_image_of_a_registry_must_be_signed_under_the_name_that_is_used(
    reference: str, digests: list[str], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(Trust, "require_signature", lambda _, one: seen.append(one))
    require_trusted(digests, reference, Settings())
    assert seen == [], "nobody is trusted, so nothing is asked"
    require_trusted(digests, reference, Settings.model_validate(KEY))
    assert seen == asked


@pytest.mark.parametrize(
    "verify",
    [
        {"identity": "me@example.org"},
        {"issuer": "https://issuer.example"},
        {"key": "/k", **NAMED},
        {"key": "--output-file=/x"},
        {"key": "relative.pub"},
    ],
)
def test_half_a_trust_is_refused_and_an_identity_is_trusted_with_its_issuer(
    verify: dict[str, str],
) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({"verify": verify})
    trust = trust_of(Settings.model_validate({"verify": NAMED}))
    assert trust
    assert (trust.key, trust.identity, trust.issuer) == (None, *NAMED.values())


def test_a_fingerprint_is_of_the_keys_content_or_of_who_signs(tmp_path: Path) -> None:
    """The same key in another place is the same; another key in the same place is not."""
    first, second = tmp_path / "a.pub", tmp_path / "b.pub"
    first.write_text("one", encoding="ascii")
    second.write_text("one", encoding="ascii")

    def fingerprint(**verify: str) -> str:
        trust = trust_of(Settings.model_validate({"verify": verify}))
        assert trust
        return trust.fingerprint

    before = fingerprint(key=str(first))
    assert fingerprint(key=str(second)) == before
    first.write_text("two", encoding="ascii")
    people = [
        fingerprint(identity=who, issuer=f"https://{where}.example")
        for who in ("me@example.org", "you@example.org")
        for where in ("a", "b")
    ]
    kms = [fingerprint(key="awskms:///alias/x"), fingerprint(key="awskms:///alias/y")]
    assert len({before, fingerprint(key=str(first)), *people, *kms}) == 8
