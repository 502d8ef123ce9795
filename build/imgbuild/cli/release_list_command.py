"""``imgbuild release list``: list the published images of a repository. 1 MB is 10⁶ bytes."""

from contextlib import closing
from typing import TYPE_CHECKING, Any

from imgbuild.cli.options import (
    IDENTITY,
    ISSUER,
    JSON,
    KEY,
    PROJECT,
    choose_trust,
    echo,
    flag,
    info,
    print_json,
    repository,
)
from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.project import Project
from imgbuild.core.text import table_with_notes

if TYPE_CHECKING:
    from imgbuild.publish.record import PublishedRepository


def list_releases(
    source: str | None = repository("--from", "Repository to read."),
    check: bool = flag(
        "--check",
        "Check that tags, records, manifests, signatures and provenance agree; exit 1 if not.",
    ),
    key: str | None = KEY,
    identity: str | None = IDENTITY,
    issuer: str | None = ISSUER,
    as_json: bool = JSON,
    checkout: Project = PROJECT,
) -> None:
    """List the published images of a repository.

    The list comes from the registry's tags and records. To verify signatures and provenance with
    --check, name a key or an identity that you trust, with these options or under `verify` in the
    settings.

    Example: imgbuild release list --from registry.example.org/ml/tensorflow
    """
    from imgbuild.matrix.load import load_matrix
    from imgbuild.net.repository_client import connect
    from imgbuild.publish.inspection import inspect_repository
    from imgbuild.publish.record import read_published

    settings = checkout.settings
    if not check and (key or identity or issuer):
        raise InputError("--key, --identity and --issuer require --check.")
    trust = choose_trust(settings, key, identity, issuer) if check else None
    with closing(connect(source, settings, info, "--from")) as registry:
        contents = read_published(registry)
        if check:
            faults = [*inspect_repository(registry, contents, load_matrix(checkout.matrix), trust)]
        else:
            faults = [*contents.faults()]
    if not contents.whole:
        info(f"Nothing has been published in {contents.name}.")
    if as_json:
        print_json(published_json(contents))
    elif contents.whole:
        echo("\n".join(published_lines(contents)))
    for text in contents.notes() if check else faults:
        info(f"note: {text}")
    if check and trust is None and contents.whole:
        info(
            "note: signatures and provenance were not verified. Use --key, or --identity and "
            "--issuer."
        )
    if check and faults:
        raise CheckFailedError("\n".join(faults))
    if check and contents.whole:
        count = len(contents.digests)
        info(f"{count} {'tag agrees' if count == 1 else 'tags agree'} with the records.")


def published_lines(repository: "PublishedRepository") -> list[str]:
    """Return the table of published images by name, with the latest release first.

    Below each row are notes, if they apply: suites that did not pass, the base of an extended image
    and the retirement. The last note has the tags: the immutable tag, and the moving tags that now
    point to the image.
    """
    records = sorted(repository.whole, key=lambda record: record.age, reverse=True)
    records.sort(key=lambda record: record.image)
    rows: list[tuple[str, ...]] = [("image", "digest", "MB", "published", "suites")]
    notes: list[list[str]] = [[]]
    for record in records:
        size = f"{record.size / 1e6:.1f}"
        when = record.published[:16].replace("T", " ")
        verdicts = {suite: result.verdict for suite, result in record.report.items()}
        passed = [*verdicts.values()].count("passed")
        rows.append((record.image, record.short_digest, size, when, f"{passed} passed"))
        other = [f"{suite} {word}" for suite, word in verdicts.items() if word != "passed"]
        other += [f"{suite} not run" for suite in record.not_run]
        said = []
        if other:
            said.append(f"suites: {', '.join(other)}")
        if record.base:
            said.append(f"on {record.base}")
        if record.retired:
            said.append(f"retired on {record.retired}: {record.retired_reason}")
        tags = " ".join((record.tag, *repository.moving(record)))
        notes.append([*said, tags])
    return table_with_notes(rows, notes)


def published_json(repository: "PublishedRepository") -> list[dict[str, Any]]:
    """Return the records without reports; ``points_here`` are an image's present moving tags."""
    documents = []
    for record in repository.whole:
        document = {key: value for key, value in record.as_json().items() if key != "report"}
        document["platform"] = record.platform
        document["points_here"] = list(repository.moving(record))
        documents.append(document)
    return documents
