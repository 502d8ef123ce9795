"""Stand-ins for Sigstore's two services, for signatures without a key: Fulcio and Rekor, version 1.

Fulcio certifies the key of whoever has a token, after no check at all; certificates are as the real
one's, with a timestamp of a log in them. Rekor keeps nothing: each entry is a tree of its own.
Sources: RFC 6962; cosign 2.5 and 3.1, sigstore-go 1.2, the specification of Fulcio's certificates.
"""

import base64
import datetime as dt
import hashlib
import json
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

ISSUER, IDENTITY = "https://issuer.test", "release@example.org"
_OWN = "1.3.6.1.4.1.57264.1"  # of Fulcio's extensions
_SCTS = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ECDSA = ec.ECDSA(hashes.SHA256())
_PEM, _DER = serialization.Encoding.PEM, serialization.Encoding.DER
_SPKI = serialization.PublicFormat.SubjectPublicKeyInfo


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _compact(value: object) -> bytes:
    """Return canonical JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def identity_token() -> str:
    """Return the token of `IDENTITY`; its signature is none, and nobody looks at it."""
    claims = {"iss": ISSUER, "sub": IDENTITY, "email": IDENTITY, "email_verified": True}
    parts = ({"alg": "ES256"}, {**claims, "aud": "sigstore", "exp": 1 << 32})
    coded = [base64.urlsafe_b64encode(_compact(one)).rstrip(b"=").decode() for one in parts]
    return ".".join([*coded, "bm9uZQ"])


@dataclass
class Log:
    """A log that signs: its key, and the id that follows from it."""

    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )

    def public(self, encoding: serialization.Encoding = _DER) -> bytes:
        return self.key.public_key().public_bytes(encoding, _SPKI)

    @property
    def id(self) -> bytes:
        return hashlib.sha256(self.public()).digest()

    def signed(self, data: bytes) -> bytes:
        return self.key.sign(data, _ECDSA)


@dataclass
class Sigstore:
    """Both services at ``url``; ``variables`` are cosign's that name them and whom to trust."""

    folder: Path
    url: str = ""
    ca: Log = field(default_factory=Log)
    certificates: Log = field(default_factory=Log)
    entries: Log = field(default_factory=Log)
    logged: int = 0
    token: str = field(default_factory=identity_token)

    @cached_property
    def root(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test's Fulcio")])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = _builder(name, name, self.ca.key.public_key(), 3650)
        builder = builder.add_extension(x509.BasicConstraints(True, 1), critical=True)
        builder = builder.add_extension(usage, critical=True)
        ski = x509.SubjectKeyIdentifier.from_public_key(self.ca.key.public_key())
        return builder.add_extension(ski, critical=False).sign(self.ca.key, hashes.SHA256())

    def variables(self, version: int) -> dict[str, str]:
        """Return the environment of a cosign of this major version."""
        known = {
            "COSIGN_FULCIO_URL": self.url,
            "COSIGN_REKOR_URL": self.url,
            "SIGSTORE_ID_TOKEN": self.token,
            "TUF_ROOT": str(self.folder / "tuf"),  # not the user's
        }
        files = {
            "SIGSTORE_ROOT_FILE": self.root.public_bytes(_PEM),
            "SIGSTORE_REKOR_PUBLIC_KEY": self.entries.public(_PEM),
            "SIGSTORE_CT_LOG_PUBLIC_KEY_FILE": self.certificates.public(_PEM),
            "COSIGN_TRUSTED_ROOT": _compact(self._trusted_root()),
        }
        for name, content in files.items():
            path = self.folder / name
            path.write_bytes(content)
            if (name == "COSIGN_TRUSTED_ROOT") == (version > 2):
                known[name] = str(path)
        return known

    def _trusted_root(self) -> Mapping[str, Any]:
        start = {"start": "2020-01-01T00:00:00Z"}

        def log(one: Log) -> Mapping[str, Any]:
            key = {"rawBytes": _b64(one.public()), "keyDetails": "PKIX_ECDSA_P256_SHA_256"}
            return {
                "baseUrl": self.url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": {**key, "validFor": start},
                "logId": {"keyId": _b64(one.id)},
            }

        chain = {"certificates": [{"rawBytes": _b64(self.root.public_bytes(_DER))}]}
        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.entries)],
            "ctlogs": [log(self.certificates)],
            "certificateAuthorities": [{"uri": self.url, "certChain": chain, "validFor": start}],
        }

    def certificate(self, key: str, token: str) -> list[str]:
        """Return the chain for a public key: a certificate for ten minutes, and the root."""
        claims = token.split(".")[1]
        known = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        public = serialization.load_pem_public_key(key.encode())
        assert isinstance(public, ec.EllipticCurvePublicKey)
        builder = _builder(x509.Name([]), self.root.subject, public, 0)
        issuer = known["iss"].encode()
        for extension, critical in (
            (x509.KeyUsage(True, *[False] * 8), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False),
            (x509.SubjectAlternativeName([x509.RFC822Name(known["email"])]), True),
            (x509.UnrecognizedExtension(ObjectIdentifier(f"{_OWN}.1"), issuer), False),
            (x509.UnrecognizedExtension(ObjectIdentifier(f"{_OWN}.8"), _tlv(12, issuer)), False),
        ):
            builder = builder.add_extension(extension, critical=critical)
        before = builder.sign(self.ca.key, hashes.SHA256()).tbs_certificate_bytes
        proof = x509.UnrecognizedExtension(_SCTS, _tlv(4, self._timestamp(before)))
        made = builder.add_extension(proof, critical=False).sign(self.ca.key, hashes.SHA256())
        return [one.public_bytes(_PEM).decode() for one in (made, self.root)]

    def _timestamp(self, certificate: bytes) -> bytes:
        """Return the list of the one signed timestamp of a certificate that lacks it yet."""
        log, now = self.certificates, struct.pack(">Q", int(time.time() * 1000))
        issuer = hashlib.sha256(self.ca.public()).digest()
        length = struct.pack(">I", len(certificate))[1:]
        of_entry = issuer + length + certificate + b"\0\0"
        signature = log.signed(b"\0\0" + now + b"\0\1" + of_entry)
        coded = b"\0" + log.id + now + b"\0\0" + b"\4\3" + _sized(signature)
        return _sized(_sized(coded))

    def entry(self, proposed: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the id and the entry that the log has for what is proposed."""
        body = _compact({**proposed, "spec": _canonical(proposed)})
        leaf = hashlib.sha256(b"\0" + body).digest()
        self.logged += 1
        entry = {
            "body": _b64(body),
            "integratedTime": int(time.time()),
            "logID": self.entries.id.hex(),
            "logIndex": self.logged,
        }
        text = f"log.test - 1\n1\n{_b64(leaf)}\n"
        mark = _b64(self.entries.id[:4] + self.entries.signed(text.encode()))
        proof = {
            "checkpoint": f"{text}\n\u2014 log.test {mark}\n",
            "hashes": [],
            "logIndex": 0,
            "rootHash": leaf.hex(),
            "treeSize": 1,
        }
        promise = _b64(self.entries.signed(_compact(entry)))
        verification = {"inclusionProof": proof, "signedEntryTimestamp": promise}
        return f"{1:016x}{leaf.hex()}", {**entry, "verification": verification}


def _canonical(proposed: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the log keeps of a proposal: of an envelope its hashes and signatures."""
    spec: Mapping[str, Any] = proposed["spec"]
    if proposed["kind"] != "dsse":
        return spec
    content = spec["proposedContent"]
    envelope = json.loads(content["envelope"])

    def hashed(data: bytes) -> Mapping[str, str]:
        return {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}

    pairs = zip(envelope["signatures"], content["verifiers"], strict=True)
    return {
        "envelopeHash": hashed(content["envelope"].encode()),
        "payloadHash": hashed(base64.b64decode(envelope["payload"])),
        "signatures": [{"signature": one["sig"], "verifier": verifier} for one, verifier in pairs],
    }


def _sized(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def _tlv(tag: int, data: bytes) -> bytes:
    """Return a value of less than 256 bytes in DER."""
    return bytes([tag, *([] if len(data) < 128 else [0x81]), len(data)]) + data


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=1))
        .not_valid_after(now + dt.timedelta(days=days, minutes=10))
    )


@contextmanager
def sigstore(folder: Path) -> Iterator[Sigstore]:
    """Give both services, running on loopback."""
    made = Sigstore(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if self.path == "/api/v1/log/entries":
                name, entry = made.entry(given)
                self._answer(201, _compact({name: entry}), name)
            elif self.path == "/api/v1/signingCert":  # of cosign 2
                key = base64.b64decode(given["publicKey"]["content"]).decode()
                self._answer(201, "".join(made.certificate(key, token)).encode())
            else:
                key = given["publicKeyRequest"]["publicKey"]["content"]
                chain = {"chain": {"certificates": made.certificate(key, token)}}
                self._answer(200, _compact({"signedCertificateEmbeddedSct": chain}))

        def _answer(self, code: int, content: bytes, name: str = "") -> None:
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if name:
                self.send_header("ETag", name)
                self.send_header("Location", f"/api/v1/log/entries/{name}")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log no requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
