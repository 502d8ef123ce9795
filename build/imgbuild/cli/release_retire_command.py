"""``imgbuild release retire``: mark published images that nobody should use any more."""

from contextlib import closing
from datetime import UTC, datetime

import typer

from imgbuild.cli.options import (
    PROJECT,
    SIGN_KEY,
    SIGN_KEYLESS,
    check_signer,
    info,
    option,
    repository,
)
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project


def retire_images(
    tags: list[str] = typer.Argument(metavar="TAG...", help="Tags of the published images."),
    reason: str = option(
        "--reason TEXT", "Reason in one line, for users of the images.", default=...
    ),
    source: str | None = repository("--from", "Repository of the images."),
    sign_key: str | None = SIGN_KEY,
    sign_keyless: bool = SIGN_KEYLESS,
    checkout: Project = PROJECT,
) -> None:
    """Mark published images as retired; delete nothing.

    No tag moves. `imgbuild release list` shows the day and the reason, and the record in the
    registry gets an annotation for other tools. The retirement of a signed image must be signed as
    well, so that `imgbuild verify` refuses the image.

    Example: imgbuild release retire TAG --reason 'A hole in OpenSSL'
    """
    from imgbuild.net.repository_client import connect
    from imgbuild.net.signing import find_signer, read_trust
    from imgbuild.publish import life_cycle

    check_signer(sign_key, sign_keyless)
    if len(reason) > 200 or not reason.isprintable():
        raise InputError("--reason: give one line of at most 200 characters.")
    settings = checkout.settings
    with closing(connect(source, settings, info, "--from")) as registry:
        signer, trust = find_signer(sign_key, settings, keyless=sign_keyless), read_trust(settings)
        today = datetime.now(UTC).date()
        for tag in life_cycle.retire(registry, tags, reason, today, signer=signer, trust=trust):
            info(f"{registry.name}:{tag} is retired.")
