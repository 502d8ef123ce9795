"""``imgbuild verify``: verify the signature and the contents of a published image."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING

from imgbuild.cli.options import (
    BUILDER,
    IDENTITY,
    ISSUER,
    JSON,
    KEY,
    PROJECT,
    WHOSE,
    choose_trust,
    engine_images,
    flag,
    info,
    print_result,
    takes_selection,
)
from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.project import Project
from imgbuild.matrix.selection import Selection
from imgbuild.net.addresses import has_registry

if TYPE_CHECKING:
    from imgbuild.net.signing import Trust
    from imgbuild.publish.verification import VerifiedFact


@takes_selection()
def verify(
    selection: Selection,
    key: str | None = KEY,
    identity: str | None = IDENTITY,
    issuer: str | None = ISSUER,
    rebuild: bool = flag(
        "--rebuild", "Also build the image again without caches; exit 1 if the result differs."
    ),
    builder: list[str] | None = BUILDER,
    as_json: bool = JSON,
    checkout: Project = PROJECT,
) -> None:
    """Verify the signature and the contents of a published image.

    IMAGE is HOST/REPOSITORY:TAG or HOST/REPOSITORY@DIGEST. Its tag, record, configuration and
    contents must match its signed SBOM and provenance, and it must not be retired. Otherwise, the
    command reports the differences and exits with 1. Without --key and --identity, it trusts the
    key or identity under `verify` in the settings.

    With --rebuild, IMAGE can also be an image of the engine. The command builds it again with the
    inputs that its labels name, and leaves tags and imgbuild's caches unchanged.

    Example: imgbuild verify --key cosign.pub registry.example.org/ml/tf:2.2
    """
    published = [name for name in selection.names if has_registry(name)]
    if not published and rebuild:
        if key or identity or issuer:
            raise InputError(
                "--key, --identity and --issuer require a published image: HOST/REPOSITORY:TAG."
            )
        _rebuild(checkout, selection, tuple(builder or ()), as_json=as_json)
        return
    if len(published) != 1 or selection != Selection(names=tuple(published)):
        raise InputError(
            "Give one published image, HOST/REPOSITORY:TAG or HOST/REPOSITORY@DIGEST. To build an "
            "image of the engine again and compare both, add --rebuild."
        )
    if builder and not rebuild:
        raise InputError("--builder requires --rebuild.")
    trust = choose_trust(checkout.settings, key, identity, issuer)
    if trust is None:
        raise InputError(f"{WHOSE} Or set verify: {{key: …}} in imgbuild.local.yaml.")
    (reference,) = published
    _verify(checkout, reference, trust, tuple(builder or ()), rebuild=rebuild, as_json=as_json)


def _rebuild(
    checkout: Project, selection: Selection, builders: tuple[str, ...], *, as_json: bool
) -> None:
    """Build images of the engine again, and print the differences."""
    from imgbuild.cli.rebuild_lines import rebuild_lines
    from imgbuild.maintain.reproduction import reproduce

    results = []
    for reference, planned in engine_images(checkout, selection):
        results.append(reproduce(checkout, reference, info, planned, builders))
    lines = chain.from_iterable(map(rebuild_lines, results))
    print_result([result.as_json() for result in results], lines, as_json=as_json)
    if different := [result.reference for result in results if not result.same]:
        raise CheckFailedError(f"These images differ when built again: {', '.join(different)}.")


def _verify(
    checkout: Project,
    reference: str,
    trust: "Trust",
    builders: tuple[str, ...],
    *,
    rebuild: bool,
    as_json: bool,
) -> None:
    """Verify a published image, and print each fact."""
    from imgbuild.cli.rebuild_lines import rebuild_lines
    from imgbuild.maintain.reproduction import reproduce
    from imgbuild.publish.verification import VerifiedFact, verify_image
    from imgbuild.suites.container import require_docker_client

    require_docker_client()
    exact, facts = verify_image(reference, trust, checkout, info)
    lines = [*_lines(facts)]
    if rebuild and all(not fact.problem for fact in facts):
        # Use the digest, because the engine may have another image with this tag.
        reproduction = reproduce(checkout, exact, info, builders=builders)
        problem = "" if reproduction.same else "the rebuilt image differs"
        fact = VerifiedFact("rebuild", problem)
        facts.append(fact)
        lines += [*_lines([fact])]
        if problem:
            lines += [f"  {line}" for line in rebuild_lines(reproduction)]
    print_result([asdict(fact) for fact in facts], lines, as_json=as_json)
    if failed := [fact.name for fact in facts if fact.problem]:
        raise CheckFailedError(f"{reference} is not verified. Failed: {', '.join(failed)}.")


def _lines(facts: "list[VerifiedFact]") -> Iterator[str]:
    for fact in facts:
        sign = "✗" if fact.problem else "✓"
        line = f"{sign} {fact.name}"
        if said := fact.problem or fact.text:
            line += f": {said}"
        yield line
