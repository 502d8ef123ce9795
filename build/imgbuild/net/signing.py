"""Sign images, attest their contents, and verify both with the program cosign.

imgbuild writes both signature formats. Versions 2 and 3 of cosign verify the older one, which is
stored under a tag. Version 3 and tools like oras list the newer one, a bundle that refers to the
image. The signature under the tag is written last, so an image that has it is complete. With a key,
nothing is sent to a public log. Sources: cosign 2.5 and 3.1, ``--help`` and behaviour.
"""

import base64
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.files import json_sha256, parse_strict_json, work_folder
from imgbuild.core.process import NOT_FOUND, Finished, run
from imgbuild.core.settings import Settings

#: Time limit of one call, in seconds. Keyless signing may wait for a person at a browser.
SECONDS = 300
#: The types of predicates: cosign's names, and the URIs in statements.
TYPES = {
    "cyclonedx": "https://cyclonedx.org/bom",
    "slsaprovenance1": "https://slsa.dev/provenance/v1",
}
#: The type of the predicate that says from when an image should not be used, and why.
RETIREMENT = "urn:imgbuild:retirement:1"
#: The types of statements that imgbuild accepts. cosign writes the older one.
_STATEMENTS = ("https://in-toto.io/Statement/v0.1", "https://in-toto.io/Statement/v1")
_FORMS = (["--new-bundle-format=true"], ["--new-bundle-format=false"])
_MISSING = (
    "cosign is not on PATH. imgbuild needs it to sign images and to verify signatures. Install it "
    "(Debian 13 and Ubuntu 25.04: apt-get install cosign; other systems: the releases at "
    "github.com/sigstore/cosign)."
)
#: cosign's errors, as whole lines, if the registry answered but has no attestation at all, or none
#: of the type. If an attestation cannot be read or is not trusted, text follows the colon.
_NO_ATTESTATION = re.compile(
    "^Error: (no matching attestations: *|none of the attestations matched the predicate type.*)$",
    re.MULTILINE,
)
#: The meaning of cosign's errors. Other errors are quoted unchanged.
_REASONS = {
    "none of the expected identities matched": "somebody else signed it",
    "no matching CertificateIdentity found": "somebody else signed it",
    "no signatures found": "it has no signature",
    "no matching attestations": "it has no attestation of this type with a trusted signature",
    "invalid signature": "the signature belongs to another key or to other content",
}


#: The variables that only say who signs, and which services and keys cosign uses. cosign also reads
#: every other option from a variable: with COSIGN_UPLOAD=false it signs nothing and succeeds, and
#: with COSIGN_CHECK_CLAIMS=false it accepts the signature of another image. Source: ``cosign env``,
#: and the behaviour of 2.5 and 3.1.
_VARIABLES = re.compile(
    "COSIGN_(PASSWORD|PRIVATE_KEY|PUBLIC_KEY|YES|TIMEOUT|MAX_ATTACHMENT_SIZE|IDENTITY_TOKEN"
    "|FULCIO_URL|FULCIO_AUTH_FLOW|REKOR_URL|TRUSTED_ROOT|OIDC_[A-Z_]+|PKCS11_[A-Z_]+)"
)


@dataclass(frozen=True)
class Cosign:
    """Calls cosign. ``ca`` is the CA bundle for registries, if set.

    InputError: an environment variable changes what cosign signs or verifies.
    """

    ca: str | None = None

    def __post_init__(self) -> None:
        for name, value in os.environ.items():
            if value and name.startswith("COSIGN_") and not _VARIABLES.fullmatch(name):
                raise InputError(
                    f"{name} is set in the environment. It can change what cosign signs, where it "
                    f"puts signatures or what it accepts, so imgbuild does not call it. Run `unset "
                    f"{name}`, then run this again."
                )

    def call(self, *words: str, registry: bool = True) -> Finished:
        """Run cosign until it ends; it reads passwords from the environment.

        MachineError: cosign is not on PATH.
        """
        trusted = ["--registry-cacert", self.ca] if registry and self.ca else []
        finished = run(["cosign", *words, *trusted], timeout=SECONDS)
        if finished.code == NOT_FOUND:
            raise MachineError(_MISSING)
        return finished

    @cached_property
    def has_signing_config(self) -> bool:
        """Whether cosign is version 3 or newer, whose defaults differ."""
        return "--use-signing-config" in self.call("sign", "--help", registry=False).output


@dataclass(frozen=True)
class Signer:
    """Signs with a key: a file, or an address of a KMS. Without one, a person or a CI job signs."""

    cosign: Cosign
    key: str | None = None

    @cached_property
    def trust(self) -> "Trust":
        """The trust that accepts this signer's signatures.

        CheckFailedError: the key cannot be read.
        """
        answer = self.cosign.call("public-key", f"--key={self.key}", registry=False)
        if not answer.ok:
            raise CheckFailedError(
                f"--sign-key {self.key}: {answer.last(1)}. Give a key of cosign (cosign "
                "generate-key-pair) and set its password in COSIGN_PASSWORD, or give an address of "
                "a KMS."
            )
        return Trust(self.cosign, public_key=answer.output)

    def sign(self, reference: str, predicates: Mapping[str, bytes]) -> None:
        """Attest the predicates, as `attest` does, and then sign the image.

        CheckFailedError: cosign fails; the message quotes it.
        """
        self.attest(reference, predicates)
        for form in _FORMS if self.cosign.has_signing_config else [[]]:  # version 2 has only one
            self._call("sign", *form, reference)

    def attest(self, reference: str, predicates: Mapping[str, bytes]) -> None:
        """Attest predicates, by cosign's name of their type, about the image at a digest.

        CheckFailedError: cosign fails; the message quotes it.
        """
        with work_folder("sign") as folder:
            path = folder / "predicate"
            for form in _FORMS:
                for kind, content in predicates.items():
                    path.write_bytes(content)
                    named = [f"--type={kind}", f"--predicate={path}"]
                    self._call("attest", *form, *named, reference)

    def _call(self, command: str, *words: str) -> None:
        options = [f"--key={self.key}", "--tlog-upload=false"] if self.key else []
        if self.cosign.has_signing_config:  # with one, it writes only one format
            options.append("--use-signing-config=false")
        answer = self.cosign.call(command, "--yes", *options, *words)
        if not answer.ok:
            raise CheckFailedError(f"cosign {command} failed for {words[-1]}: {answer.last()}")


@dataclass(frozen=True)
class Trust:
    """Verifies signatures by a public key, or by an identity that an issuer confirmed."""

    cosign: Cosign
    key: str | None = None
    identity: str | None = None
    issuer: str | None = None
    public_key: str = ""

    @property
    def fingerprint(self) -> str:
        """A sha256 of the key's content or its address in a KMS, and of the identity and issuer."""
        key = self.public_key or self.key or ""
        if (path := Path(key)).is_file():
            key = path.read_text(encoding="ascii", errors="replace")
        return json_sha256([key, self.identity, self.issuer])

    def require_signature(self, reference: str) -> None:
        """Verify the signature of the image at a reference by digest.

        CheckFailedError: the image has no trusted signature; the message says why.
        """
        _require_ok(self._run("verify", reference), reference)

    def read_attestations(self, reference: str, kind: str) -> tuple[Mapping[str, Any], ...]:
        """Return the attested predicates of an image that have a type, one of `TYPES` or a URI.

        CheckFailedError: there are none, or somebody else attested them.
        """
        answer = _require_ok(
            self._run("verify-attestation", f"--type={kind}", reference), reference
        )
        return _read_predicates(answer.output, kind, reference)

    def read_attestations_if_any(self, reference: str, kind: str) -> tuple[Mapping[str, Any], ...]:
        """Return the same as `read_attestations`, or nothing if there is none of the type.

        CheckFailedError: the registry could not be asked, or it has an attestation that is not
            trusted.
        """
        answer = self._run("verify-attestation", f"--type={kind}", reference)
        if not answer.ok and _NO_ATTESTATION.search(answer.errors):
            return ()
        return _read_predicates(_require_ok(answer, reference).output, kind, reference)

    def _run(self, command: str, *words: str) -> Finished:
        with work_folder("verify") as folder:
            return self.cosign.call(command, *self._options(folder), *words)

    def _options(self, folder: Path) -> Sequence[str]:
        key = self.key
        if self.public_key:
            key = str(folder / "key.pub")
            Path(key).write_text(self.public_key, encoding="ascii")
        if key:
            return [f"--key={key}", "--insecure-ignore-tlog=true"]
        return [
            f"--certificate-identity={self.identity}",
            f"--certificate-oidc-issuer={self.issuer}",
        ]


def _require_ok(answer: Finished, reference: str) -> Finished:
    """Return cosign's answer if the verification succeeded; CheckFailedError says why if not."""
    if answer.ok:
        return answer
    reasons = (text for sign, text in _REASONS.items() if sign in answer.errors)
    raise CheckFailedError(f"{reference}: {next(reasons, answer.last(1))}.")


def _read_predicates(output: str, kind: str, reference: str) -> tuple[Mapping[str, Any], ...]:
    """Return the predicates of a type, about the image at a digest, in cosign's verified output.

    CheckFailedError: there are none.
    """
    digest, uri = reference.rpartition(":")[2], TYPES.get(kind, kind)
    predicates = []
    for line in output.splitlines():
        try:
            payload = parse_strict_json(line.encode())["payload"]
            statement = parse_strict_json(base64.b64decode(payload))
            subjects = [subject["digest"]["sha256"] for subject in statement["subject"]]
            is_of_type = statement["_type"] in _STATEMENTS and statement["predicateType"] == uri
            predicate = statement["predicate"]
        except (ValueError, KeyError, TypeError):
            continue
        if is_of_type and digest in subjects and isinstance(predicate, dict):
            predicates.append(predicate)
    if not predicates:
        raise CheckFailedError(f"{reference}: no attestation of type {kind} is for this image.")
    return tuple(predicates)


def find_signer(key: str | None, settings: Settings, *, keyless: bool = False) -> Signer | None:
    """Return the signer of the options, or None; check its key before anything is sent.

    MachineError: cosign is not on PATH. CheckFailedError: the key cannot be read. InputError: see
    `Cosign`.
    """
    if not key and not keyless:
        return None
    signer = Signer(Cosign(settings.ca_bundle), key)
    if not key:
        signer.cosign.call("version", registry=False)
    elif not signer.trust.public_key:
        raise CheckFailedError(f"--sign-key {key}: cosign prints no public key for it.")
    return signer


def read_trust(settings: Settings) -> Trust | None:
    """Return the trust of the settings, or None if they name none. InputError: see `Cosign`."""
    trusted = settings.verify
    if not trusted.key and not trusted.identity:
        return None
    return Trust(Cosign(settings.ca_bundle), trusted.key, trusted.identity, trusted.issuer)


def require_trusted(
    digests: Sequence[str],
    reference: str,
    settings: Settings,
    *,
    made_here: bool,
    verified_by: object = None,
) -> None:
    """Check that the settings trust an image of the engine.

    They do in each of these cases:

    - they do not require signatures
    - the image was ``made_here``
    - its signature was verified when it was pulled; ``verified_by`` is the fingerprint of the trust
      that verified it
    - one of ``digests`` has a trusted signature; these are the image's references in registries
      that the engine knows, ``REPOSITORY@DIGEST``

    The name that the user gave does not matter, because any image can have any name.

    CheckFailedError: the image is not signed, or somebody else signed it.
    """
    trust = read_trust(settings)
    if trust is None or made_here or verified_by == trust.fingerprint:
        return
    reasons = []
    for digest in digests:
        try:
            trust.require_signature(digest)
        except CheckFailedError as error:
            reasons.append(str(error))
        else:
            return
    said = " ".join(reasons) or "The engine knows no registry that has this image."
    raise CheckFailedError(
        f"{reference} was not built on this machine and has no signature that `verify` in the "
        f"settings trusts. {said} Pull it by its name in the registry where it is signed."
    )
