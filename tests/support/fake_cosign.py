"""A cosign without a program: it keeps in memory who signed and attested what."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from imgbuild.core.process import Finished
from imgbuild.net.signing import TYPES, Cosign

STATEMENT = "https://in-toto.io/Statement/v0.1"


@dataclass(frozen=True)
class FakeCosign(Cosign):
    """Keys are words: ``own`` signs, and what verifies it is ``public own``.

    ``calls`` are the commands with their references; ``errors`` is printed by the next
    verification of an attestation of this type, in place of an answer.
    """

    signatures: set[tuple[str, str]] = field(default_factory=set)
    statements: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)

    def call(self, *words: str, registry: bool = True) -> Finished:
        command, reference = words[0], words[-1]
        options = dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word)
        key = options.get("key", "")
        if Path(key).is_file():
            key = Path(key).read_text(encoding="ascii")
        if not registry:  # public-key, or the help
            return Finished(0, f"public {key}" if key else "")
        self.calls.append((command, reference))
        kind = options.get("type", "")
        if command == "sign":
            self.signatures.add((f"public {key}", reference))
        elif command == "attest" and "new-bundle-format=false" in "".join(words):
            content = Path(options["predicate"]).read_bytes()
            self.attest(reference, kind, json.loads(content), key)
        elif command == "verify" and (key, reference) not in self.signatures:
            return Finished(1, errors="Error: no signatures found")
        elif command == "verify-attestation":
            return self._verified(key, reference, TYPES.get(kind, kind))
        return Finished(0)

    def attest(
        self,
        reference: str,
        kind: str,
        predicate: Mapping[str, Any],
        key: str = "own",
        subject: str = "",
    ) -> None:
        """Attest as another cosign; ``subject`` is the digest if it is not the reference's."""
        digest = subject or reference.rpartition(":")[2]
        statement = {
            "_type": STATEMENT,
            "predicateType": TYPES.get(kind, kind),
            "subject": [{"digest": {"sha256": digest}}],
            "predicate": predicate,
        }
        self.statements.append((f"public {key}", reference, statement))

    def _verified(self, key: str, reference: str, kind: str) -> Finished:
        if kind in self.errors:
            return Finished(1, errors=self.errors.pop(kind))
        trusted = [
            statement
            for signer, where, statement in self.statements
            if (signer, where) == (key, reference)
        ]
        found = [statement for statement in trusted if statement["predicateType"] == kind]
        if found:
            payloads = [base64.b64encode(json.dumps(one).encode()).decode() for one in found]
            return Finished(0, "\n".join(json.dumps({"payload": one}) for one in payloads))
        if trusted:
            said = f"Error: none of the attestations matched the predicate type: {kind}, found: x"
            return Finished(1, errors=said)
        return Finished(1, errors="Error: no matching attestations: ")
