"""``imgbuild verify``: whether a published image is what it should be, and of whom."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from imgbuild.cli.options import JSON, PROJECT, flag, info, option, print_result
from imgbuild.errors import CheckFailedError, InputError
from imgbuild.project import Project

_WHOSE = "Which signatures do you trust? Give --key KEY, or --identity NAME --issuer URL."

if TYPE_CHECKING:
    from imgbuild.publish.verification import VerifiedFact


def verify(
    reference: str = typer.Argument(
        metavar="IMAGE", help="A published image: HOST/REPOSITORY:TAG or @DIGEST."
    ),
    key: str | None = option(
        "--key KEY", "A public key that you trust: a file, or the address of a KMS."
    ),
    identity: str | None = option(
        "--identity NAME", "For keyless signatures, a mail address or a workflow that you trust."
    ),
    issuer: str | None = option("--issuer URL", "Who confirms that identity."),
    rebuild: bool = flag("--rebuild", "Also build it once more and compare, as `reproduce` does."),
    as_json: bool = JSON,
    checkout: Project = PROJECT,
) -> None:
    """Verify a published image: who signed it, and what it holds.

    Its signature, SBOM, provenance, record, tags and contents must agree; exit 1 says which do not.
    Without an option, the key or identity under `verify` in the settings is trusted.
    """
    from imgbuild.publish.verification import Verification, VerifiedFact
    from imgbuild.registry.signing import Cosign, Trust, trust_of
    from imgbuild.reproduction import reproduce
    from imgbuild.settings import load_settings
    from imgbuild.suites.container import require_docker_client

    settings = load_settings(checkout.settings)
    trust = trust_of(settings)
    if key or identity or issuer:
        if (key is None) == (identity is None) or (identity is None) != (issuer is None):
            raise InputError(_WHOSE)
        trust = Trust(Cosign(settings.ca_bundle), key, identity, issuer)
    if trust is None:
        raise InputError(f"{_WHOSE} Or set verify: {{key: …}} in imgbuild.local.yaml.")
    if trust.key and "://" not in trust.key and not Path(trust.key).is_file():
        raise InputError(f"The key {trust.key}: no such file.")
    require_docker_client()
    checks = Verification(reference, trust, checkout, settings, info).checks()
    if rebuild and all(not one.problem for one in checks):
        found = reproduce(checkout, reference, info)
        checks.append(
            VerifiedFact("rebuild", "" if found.same else "built again it is not the same")
        )
    print_result([asdict(one) for one in checks], _lines(checks), as_json=as_json)
    if failed := [one.name for one in checks if one.problem]:
        raise CheckFailedError(f"{reference} is not verified: {', '.join(failed)}.")


def _lines(checks: "list[VerifiedFact]") -> Iterator[str]:
    for one in checks:
        yield f"✗ {one.name}: {one.problem}" if one.problem else f"✓ {one.name}"
