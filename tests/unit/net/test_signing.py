"""Whose signatures count, and of which images; what cosign itself says is tried in tests/e2e."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.process import Finished
from imgbuild.core.settings import Settings
from imgbuild.net.signing import (
    RETIREMENT,
    TYPES,
    Cosign,
    Signer,
    Trust,
    find_signer,
    read_trust,
    require_trusted,
)
from support.fake_cosign import FakeCosign

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


@pytest.mark.parametrize(
    "option",
    [
        *("REPOSITORY", "UPLOAD", "CHECK_CLAIMS", "ATTACHMENT_TAG_PREFIX", "PAYLOAD", "SIGNATURE"),
        *("KEY", "CERTIFICATE_IDENTITY_REGEXP", "INSECURE_IGNORE_SCT", "EXPERIMENTAL", "NEW_ONE"),
    ],
)
def test_cosign_with_a_variable_that_changes_it(
    option: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would sign nothing, or elsewhere, and succeed; or accept what is not signed."""
    monkeypatch.setattr("imgbuild.net.signing.run", lambda *_, **__: pytest.fail("called"))
    monkeypatch.setenv(f"COSIGN_{option}", "false")
    calls: list[Callable[[], object]] = [
        lambda: find_signer("cosign.key", Settings()),
        lambda: find_signer(None, Settings(), keyless=True),
        lambda: read_trust(Settings.model_validate(KEY)),
        lambda: require_trusted([OWN], OWN, Settings.model_validate(KEY), made_here=False),
    ]
    for call in calls:
        with pytest.raises(InputError, match=f"unset COSIGN_{option}`"):
            call()
    assert asked == []
    assert (find_signer(None, Settings()), read_trust(Settings())) == (None, None), (
        "nothing to call"
    )


def test_cosign_with_variables_of_who_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSIGN_REPOSITORY", "")  # as if it were not set
    for option in ("PASSWORD", "FULCIO_URL", "REKOR_URL", "TRUSTED_ROOT", "OIDC_ISSUER", "YES"):
        monkeypatch.setenv(f"COSIGN_{option}", "x")
    assert read_trust(Settings.model_validate(KEY))


def test_signing_needs_cosign_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    for key, keyless in (("cosign.key", False), (None, True)):
        with pytest.raises(MachineError, match="cosign is not on PATH"):
            find_signer(key, Settings(), keyless=keyless)
    assert find_signer(None, Settings()) is None


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
    trust = read_trust(settings)
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
    trust = read_trust(Settings.model_validate({"verify": NAMED}))
    assert trust
    assert (trust.key, trust.identity, trust.issuer) == (None, *NAMED.values())


def test_a_fingerprint_is_of_the_keys_content_or_of_who_signs(tmp_path: Path) -> None:
    """The same key in another place is the same; another key in the same place is not."""
    first, second = tmp_path / "a.pub", tmp_path / "b.pub"
    first.write_text("one", encoding="ascii")
    second.write_text("one", encoding="ascii")

    def fingerprint(**verify: str) -> str:
        trust = read_trust(Settings.model_validate({"verify": verify}))
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


#: What cosign 2.5 and 3.1 print if no attestation of the type is there, and otherwise.
ABSENT = (
    "Error: no matching attestations: ",
    "WARNING: Skipping tlog verification\nError: no matching attestations: \nerror during command",
    f"Error: none of the attestations matched the predicate type: {RETIREMENT}, found: https://x/v1",
)
NOT_ASKED = (
    "Error: GET http://r/v2/ml/tf/manifests/sha256-1.att: unexpected status code 500",
    "Error: GET http://r/v2/ml/tf/manifests/sha256-1.att: UNKNOWN: boo",
    'Error: Get "https://r/v2/": dial tcp: connect: connection refused',
    "Error: no matching attestations: GET http://r/v2/ml/tf/blobs/sha256:1: UNKNOWN: boo",
    "Error: no matching attestations: accepted signatures do not match threshold, Found: 0",
    "Error: no matching attestations: failed to verify signature: could not verify envelope",
    "something else",
    "",
)


@pytest.mark.parametrize("errors", [*ABSENT, *NOT_ASKED])
def test_read_attestations_if_any_tells_absent_from_unknown(errors: str) -> None:
    cosign = FakeCosign()
    trust = Trust(cosign, "public own")
    cosign.errors[RETIREMENT] = errors
    if errors in ABSENT:
        assert trust.read_attestations_if_any(OWN, RETIREMENT) == ()
        return
    with pytest.raises(CheckFailedError):
        trust.read_attestations_if_any(OWN, RETIREMENT)


@dataclass(frozen=True)
class Answering(Cosign):
    """Gives one statement, whatever it is asked for."""

    statement: Mapping[str, Any] = field(default_factory=dict)

    def call(self, *_: str, registry: bool = True) -> Finished:  # noqa: ARG002
        payload = base64.b64encode(json.dumps(self.statement).encode()).decode()
        return Finished(0, json.dumps({"payload": payload}))


def test_attested_needs_this_digest_type_and_key() -> None:
    """All 64 digits; a trusted key's own statement, of the type that was asked for."""
    cosign, predicate = FakeCosign(), {"a": 1}
    trust, digest = Trust(cosign, "public own"), OWN.rpartition(":")[2]
    cosign.attest(OWN, "cyclonedx", predicate)
    assert trust.read_attestations(OWN, "cyclonedx") == (predicate,)
    for changed in (digest[:-1] + "2", digest[:13], digest.upper() + "0", ""):
        cosign.statements[0][2]["subject"] = [{"digest": {"sha256": changed}}]
        with pytest.raises(CheckFailedError):
            trust.read_attestations(OWN, "cyclonedx")
    cosign.statements[0][2]["subject"] = []
    with pytest.raises(CheckFailedError):
        trust.read_attestations(OWN, "cyclonedx")
    cosign.attest(OWN, "slsaprovenance1", predicate, key="other")
    for kind in ("slsaprovenance1", RETIREMENT):
        with pytest.raises(CheckFailedError):
            trust.read_attestations(OWN, kind)
    cosign.statements[0][2].update(subject=[{"digest": {"sha256": digest}}], predicateType="other")
    trust = Trust(Answering(statement=cosign.statements[0][2]), "public own")
    with pytest.raises(CheckFailedError):
        trust.read_attestations(OWN, "cyclonedx")


def test_unsigned_image_does_not_verify() -> None:
    cosign = FakeCosign()
    trust = Trust(cosign, "public own")
    for signed in (("public other", OWN), ("public own", OTHER)):
        cosign.signatures.add(signed)
        with pytest.raises(CheckFailedError):
            trust.require_signature(OWN)
    cosign.signatures.add(("public own", OWN))
    trust.require_signature(OWN)


def test_signer_attests_in_both_forms_then_signs() -> None:
    cosign = FakeCosign()
    Signer(cosign, "own").sign(OWN, dict.fromkeys(TYPES, b"{}"))
    assert cosign.calls == [("attest", OWN)] * 4 + [("sign", OWN)]
    cosign.calls.clear()
    Signer(cosign, "own").attest(OWN, {RETIREMENT: b'{"retired": "2026-11-27"}'})
    assert cosign.calls == [("attest", OWN)] * 2
    trust = Trust(cosign, "public own")
    assert trust.read_attestations_if_any(OWN, RETIREMENT) == ({"retired": "2026-11-27"},)
