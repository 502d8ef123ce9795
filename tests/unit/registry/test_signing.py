"""Whose signatures count, and of which images; what cosign itself says is tried in tests/e2e."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from imgbuild.errors import CheckFailedError
from imgbuild.registry.signing import Trust, require_trusted, trust_of
from imgbuild.settings import Settings

KEY = {"verify": {"key": "/etc/cosign.pub"}}
NAMED = {"identity": "me@example.org", "issuer": "https://issuer.example"}
OWN, OTHER = "r.example/ml/tf@sha256:" + "1" * 64, "r.example/ml/t@sha256:" + "2" * 64


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the digests whose signature was asked for; `OWN` alone has a trusted one."""
    seen: list[str] = []

    def require(_: Trust, reference: str) -> None:
        seen.append(reference)
        if reference != OWN:
            raise CheckFailedError("it has no signature.")

    monkeypatch.setattr(Trust, "require_signature", require)
    return seen


#: By an id, by another local name, and by the name in the registry.
REFERENCES = ("sha256:" + "3" * 64, "me/own:1", "r.example/ml/tf:2.2-cpu", OWN)


@pytest.mark.parametrize("reference", REFERENCES)
def test_trust_needs_a_signature_by_any_name(reference: str, asked: list[str]) -> None:
    require_trusted([OTHER], reference, Settings(), made_here=False)
    assert asked == [], "nobody is trusted, so nothing is asked"
    settings = Settings.model_validate(KEY)
    require_trusted([OTHER, OWN], reference, settings, made_here=False)
    assert asked == [OTHER, OWN]
    for digests in ([OTHER], []):
        with pytest.raises(CheckFailedError):
            require_trusted(digests, reference, settings, made_here=False)


def test_trust_needs_no_signature_of_own_images(asked: list[str]) -> None:
    settings = Settings.model_validate(KEY)
    trust = trust_of(settings)
    assert trust
    require_trusted([OTHER], "x:1", settings, made_here=True)
    require_trusted([], "x:1", settings, made_here=False, verified_by=trust.fingerprint)
    assert asked == []
    with pytest.raises(CheckFailedError):
        require_trusted([], "x:1", settings, made_here=False, verified_by="another's")


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
