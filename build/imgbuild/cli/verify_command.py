"""``imgbuild verify``: whether a published image is what it should be, and of whom."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from imgbuild.cli.options import (
    IDENTITY,
    ISSUER,
    JSON,
    KEY,
    PROJECT,
    WHOSE,
    choose_trust,
    flag,
    info,
    print_result,
)
from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.project import Project

if TYPE_CHECKING:
    from imgbuild.publish.verification import VerifiedFact


def verify(
    reference: str = typer.Argument(
        metavar="IMAGE", help="A published image: HOST/REPOSITORY:TAG or @DIGEST."
    ),
    key: str | None = KEY,
    identity: str | None = IDENTITY,
    issuer: str | None = ISSUER,
    rebuild: bool = flag("--rebuild", "Also build it once more and compare, as `reproduce` does."),
    as_json: bool = JSON,
    checkout: Project = PROJECT,
) -> None:
    """Verify a published image: who signed it, and what it holds.

    Its tag, record, configuration and contents must agree with its signed SBOM and provenance, and
    it must not be retired. Otherwise the command says what is wrong, and exits with 1. Without an
    option, the key or identity under `verify` in the settings is trusted.
    """
    from imgbuild.maintain.reproduction import reproduce
    from imgbuild.publish.verification import VerifiedFact, verify_image
    from imgbuild.suites.container import require_docker_client

    trust = choose_trust(checkout.settings, key, identity, issuer)
    if trust is None:
        raise InputError(f"{WHOSE} Or set verify: {{key: …}} in imgbuild.local.yaml.")
    require_docker_client()
    exact, facts = verify_image(reference, trust, checkout, info)
    if rebuild and all(not fact.problem for fact in facts):
        # By its digest: the engine may have another image under the tag.
        reproduction = reproduce(checkout, exact, info)
        problem = "" if reproduction.same else "another build of it is not the same"
        facts.append(VerifiedFact("rebuild", problem))
    print_result([asdict(fact) for fact in facts], _lines(facts), as_json=as_json)
    if failed := [fact.name for fact in facts if fact.problem]:
        raise CheckFailedError(f"{reference} is not verified: {', '.join(failed)}.")


def _lines(facts: "list[VerifiedFact]") -> Iterator[str]:
    for fact in facts:
        sign = "✗" if fact.problem else "✓"
        line = f"{sign} {fact.name}"
        if said := fact.problem or fact.text:
            line += f": {said}"
        yield line
