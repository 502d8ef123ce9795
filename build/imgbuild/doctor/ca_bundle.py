"""Does this network re-sign TLS? Then builds need the private CA too, as a secret."""

import os
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from imgbuild.doctor.finding import Finding, Status, fine

#: What OpenSSL, requests, curl and pip read, in the order in which one is believed.
VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
#: Where distributions keep the bundle that programs use by default.
SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
)
#: Debian's own copies of the public CAs; what an administrator adds is elsewhere.
DISTRIBUTED = Path("/usr/share/ca-certificates")

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@dataclass(frozen=True)
class CaState:
    """The bundle that programs here trust, and how many of its CAs are on no public list."""

    bundle: Path | None
    named_by: str
    private: int

    @property
    def private_bundle(self) -> Path | None:
        """The bundle, if a build without it may fail."""
        return self.bundle if self.private else None


def read_ca_state(
    environment: Mapping[str, str] = os.environ,
    system: tuple[Path, ...] = SYSTEM_BUNDLES,
    public: frozenset[str] | None = None,
) -> CaState:
    """Return which CA bundle is in use here and whether it holds private CAs."""
    named = next((name for name in VARIABLES if environment.get(name)), None)
    if named:
        bundle: Path | None = Path(environment[named])
    else:
        bundle = next((path for path in system if path.is_file()), None)
    if bundle is None:
        return CaState(None, "", 0)
    known = public_certificates() if public is None else public
    return CaState(bundle, named or "the system's bundle", len(_certificates(bundle) - known))


def check_ca(state: CaState, configured: str | None, write: str) -> Finding:
    """Return whether builds are given the CAs that this machine trusts."""
    what = "CA bundle"
    if configured and Path(configured).is_file():
        return fine(what, f"{configured}, given to builds as a secret (imgbuild.local.yaml)")
    if state.bundle and not state.bundle.is_file():
        detail = f"{state.named_by} names {state.bundle}, which does not exist"
        return Finding(Status.MISSING, what, detail, f"unset {state.named_by}")
    if not state.private:
        return fine(what, "no private CA in use")
    detail = f"{state.bundle} ({state.named_by}) holds {state.private} private CA(s)"
    return Finding(Status.WARNING, what, f"{detail}; builds need it as a secret", write)


def choose_ca(configured: str | None, state: CaState) -> str | None:
    """Return the CA bundle that builds are given: the user's own, else one with private CAs."""
    if configured and Path(configured).is_file():
        return configured
    return str(state.private_bundle) if state.private_bundle else None


def public_certificates() -> frozenset[str]:
    """Return the fingerprints of the CAs that everyone trusts: Mozilla's, and Debian's copies."""
    files = [*DISTRIBUTED.rglob("*.crt")]
    with suppress(ImportError):
        import certifi  # noqa: PLC0415 - 300 KB that only the doctor needs

        files.append(Path(certifi.where()))
    return frozenset().union(*(_certificates(file) for file in files))


def _certificates(path: Path) -> frozenset[str]:
    with suppress(OSError, UnicodeDecodeError, ValueError):
        text = path.read_text(encoding="utf-8")
        blocks = [part.split(_END)[0] for part in text.split(_BEGIN)[1:]]
        return frozenset(_fingerprint(block) for block in blocks)
    return frozenset()


def _fingerprint(block: str) -> str:
    der = ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{block}{_END}\n")
    return sha256(der).hexdigest()
