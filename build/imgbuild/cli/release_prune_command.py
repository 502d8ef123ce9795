"""``imgbuild release prune``: delete old releases of a repository."""

from contextlib import closing

from imgbuild.cli.options import JSON, PROJECT, flag, info, option, print_result, repository
from imgbuild.core.project import Project
from imgbuild.core.text import count_text


def prune_releases(
    keep: int = option(
        "--keep COUNT", "Number of latest releases to keep of each image.", default=..., min=1
    ),
    source: str | None = repository("--from", "Repository to prune."),
    yes: bool = flag("--yes", "Delete the listed tags."),
    as_json: bool = JSON,
    checkout: Project = PROJECT,
) -> None:
    """List the old releases of a repository; with --yes, delete them.

    An image with a moving tag, or with a tag that imgbuild did not write, stays with its signatures
    and its record. The command also deletes images of interrupted pushes, and wheels, suite results
    and unpublished images that earlier versions stored. Do not run it during a push. The registry
    must allow deletions. Its own garbage collection frees the space.

    Example: imgbuild release prune --keep 3
    """
    from imgbuild.net.repository_client import connect
    from imgbuild.publish.life_cycle import delete_tags, find_old, tags_to_delete
    from imgbuild.publish.record import read_published

    settings = checkout.settings
    with closing(connect(source, settings, info, "--from")) as registry:
        published = read_published(registry)
        digests = registry.heads(published.tags)
        old = find_old(registry, published, digests, keep)
        going = tags_to_delete(registry, published, digests, old)
        deleted = [*delete_tags(registry, going, digests)] if yes else []
    result = {"repository": registry.name, "tags": going, "deleted": deleted}
    lines = [f"{tag}  of {owner}" if tag != owner else tag for tag, owner in going.items()]
    counts = f"{count_text(len(old), 'old release')}, {count_text(len(going), 'tag')}"
    counts += f" in {registry.name}"
    end = f"Deleted {len(deleted)} of the tags." if yes else "Use --yes to delete the tags."
    summary = f"{counts}. {end}" if going else f"{registry.name} has nothing to delete."
    print_result(result, [*lines, summary], as_json=as_json)
