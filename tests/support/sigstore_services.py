"""Stand-ins for Sigstore's two services, for signatures without a key: Fulcio and Rekor, version 1.

Fulcio certifies the key of whoever has the one token; certificates are as the real one's, with a
timestamp of a log in them. Rekor keeps nothing: each entry is a tree of its own.
Sources: RFC 6962; cosign 2.5 and 3.1, sigstore-go 1.2, the specification of Fulcio's certificates.
"""

import base64
import datetime as dt
import hashlib
import json
import struct
import subprocess
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

from support.debian_program import debian_program

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


def _token() -> str:
    claims = {"iss": ISSUER, "sub": IDENTITY, "email": IDENTITY, "email_verified": True}
    parts = ({"alg": "ES256"}, {**claims, "aud": "sigstore", "exp": 1 << 32})
    coded = [base64.urlsafe_b64encode(_compact(one)).rstrip(b"=").decode() for one in parts]
    return ".".join([*coded, "bm9uZQ"])


#: Whose it is, it says; its signature is none, and nobody looks at it.
TOKEN = _token()


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
            "SIGSTORE_ID_TOKEN": TOKEN,
            "TUF_ROOT": str(self.folder / "tuf"),  # not the user's
        }
        old = {name: str(path) for name, path in self._keys.items()}
        return {**known, **(old if version == 2 else {"COSIGN_TRUSTED_ROOT": self._trusted_root})}

    @cached_property
    def _keys(self) -> Mapping[str, Path]:
        """The files that version 2 has for what it trusts, by their variables."""
        files = {
            "SIGSTORE_ROOT_FILE": self.root.public_bytes(_PEM),
            "SIGSTORE_REKOR_PUBLIC_KEY": self.entries.public(_PEM),
            "SIGSTORE_CT_LOG_PUBLIC_KEY_FILE": self.certificates.public(_PEM),
        }
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
        return {name: self.folder / name for name in files}

    @cached_property
    def _trusted_root(self) -> str:
        """The file that version 3 has for the same, and makes of them."""
        root, entries, certificates = self._keys.values()
        made, since = str(self.folder / "trusted_root.json"), "start-time=2020-01-01T00:00:00Z"
        services = (
            f"--fulcio=url={self.url},certificate-chain={root},{since}",
            f"--rekor=url={self.url},public-key={entries},{since}",
            f"--ctfe=url={self.url},public-key={certificates},{since}",
        )
        cosign = str(debian_program("cosign", "sid") / "cosign")
        words = [cosign, "trusted-root", "create", *services, f"--out={made}"]
        subprocess.run(words, check=True, capture_output=True)
        return made

    def certificate(self, key: str) -> list[str]:
        """Return the chain for a public key: a certificate for ten minutes, and the root."""
        public = serialization.load_pem_public_key(key.encode())
        assert isinstance(public, ec.EllipticCurvePublicKey)
        builder = _builder(x509.Name([]), self.root.subject, public, 0)
        issuer = ISSUER.encode()
        for extension, critical in (
            (x509.KeyUsage(True, *[False] * 8), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False),
            (x509.SubjectAlternativeName([x509.RFC822Name(IDENTITY)]), True),
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
            if self.path == "/api/v1/log/entries":
                name, entry = made.entry(given)
                self._answer(201, _compact({name: entry}), name)
            elif self.headers["Authorization"] != f"Bearer {TOKEN}":
                self._answer(401, b"{}")
            elif self.path == "/api/v1/signingCert":  # of cosign 2
                key = base64.b64decode(given["publicKey"]["content"]).decode()
                self._answer(201, "".join(made.certificate(key)).encode())
            else:
                key = given["publicKeyRequest"]["publicKey"]["content"]
                chain = {"chain": {"certificates": made.certificate(key)}}
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
