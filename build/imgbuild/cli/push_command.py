"""``imgbuild push``: publish images whose suites passed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from imgbuild.cli import options
from imgbuild.cli.options import echo, flag, info, option, print_json, select, takes_selection
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.core.text import count_text, table_with_notes
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image
    from imgbuild.publish.image_push import PushedImage
    from imgbuild.publish.push import PushResult


@takes_selection()
def push(
    selection: Selection,
    to: str | None = options.repository(
        "--to", "Target repository. For an extended image, it must end with the image's name."
    ),
    release: str | None = option(
        "--release RELEASE",
        "Release in the immutable tag: YYYYMMDD.N. Default: the image's release if it is already "
        "published, else the next release of today.",
    ),
    dry_run: bool = flag("--dry-run", "Show which images would be published; publish nothing."),
    allow_substituted: bool = flag(
        "--allow-substituted",
        "Also publish images with inputs that differ from the matrix's, for example a CPython of "
        "this machine. Their records say so.",
    ),
    allow_skipped: list[str] | None = option(
        "--allow-skipped SUITE",
        "Also publish images that skipped this suite, for example gpu_runs; repeatable.",
    ),
    platform: str | None = options.PLATFORM,
    sign_key: str | None = options.SIGN_KEY,
    sign_keyless: bool = options.SIGN_KEYLESS,
    jobs: int = option(
        "--jobs COUNT", "Number of images to push in parallel.", min=1, max=32, default=3
    ),
    as_json: bool = options.JSON,
    checkout: Project = options.PROJECT,
) -> None:
    """Publish images whose suites passed.

    Each image gets one immutable tag with all versions, its SBOM and its provenance, and then its
    moving tags. If the images of a release for all platforms are published, the moving tags point
    to both. Nothing is uploaded twice, and the same command completes an interrupted push.
    IMAGE can also be an image of `imgbuild extend`: me/train:1 is published with the tag train:1
    and the immutable tag train:1-RELEASE. Log in with `docker login HOST`.

    Example: imgbuild push 2.2 --to registry.example.org/ml/tensorflow
    """
    from imgbuild.publish.candidate import ALLOW_SKIPPED, ALLOW_SUBSTITUTED
    from imgbuild.publish.push import PushOptions, push_images

    skipped = allow_skipped or ()
    allowed = {f"{ALLOW_SKIPPED} {suite}" for suite in skipped}
    if allow_substituted:
        allowed.add(ALLOW_SUBSTITUTED)
    if not selection.named:  # no default image, because a published tag is permanent
        raise InputError("Select the images to publish: IMAGE, --tf VERSION or --all.")
    options.check_signer(sign_key, sign_keyless)
    extended = extended_images(checkout, selection)
    if extended and platform:
        raise InputError("--platform: an image of `imgbuild extend` has only its own platform.")
    images = builder_images(checkout) if extended else matrix_images(checkout, selection, platform)
    push_options = PushOptions(
        images=images,
        to=to,
        release=release,
        allowed=frozenset(allowed),
        jobs=jobs,
        plan=dry_run,
        sign_key=sign_key,
        sign_keyless=sign_keyless,
        extended=extended,
    )
    result = push_images(checkout, push_options, info)
    if as_json:
        document = result_json(result, plan=dry_run)
        print_json(document)
    elif result.images:
        lines = planned_lines(result) if dry_run else pushed_lines(result)
        echo("\n".join(lines))
    if any("attach" in image.work for image in result.images):
        info("note: nothing is signed. Use --sign-key or --sign-keyless to sign.")
    if failure := result.failure():
        raise failure


def extended_images(checkout: Project, selection: Selection) -> tuple[str, ...]:
    """Return the names of the selected images that `imgbuild extend` made.

    InputError: other images or selection options are given in addition.
    """
    from imgbuild.dockerfile.labels import EXTENDS
    from imgbuild.engine.client import open_engine

    named = [name for name in selection.names if ":" in name]
    if not named:
        return ()
    extended = []
    with open_engine(checkout.settings.engine) as engine:
        for name in dict.fromkeys(named):
            stored = engine.inspect(name)
            if stored and EXTENDS in stored.labels:
                extended.append(name)
    others = [name for name in selection.names if name not in extended]
    only_names = Selection(names=selection.names)
    if extended and (others or selection != only_names):
        raise InputError(
            f"{', '.join(extended)}: push images of `imgbuild extend` and images of the matrix in "
            "separate commands."
        )
    return tuple(extended)


def matrix_images(
    checkout: Project, selection: Selection, platform: str | None
) -> "tuple[Image, ...]":
    """Return the selected images of the matrix for a platform; see `options.for_platform`.

    InputError: an image is neither in the matrix nor made by `imgbuild extend`.
    """
    try:
        images = select(checkout, selection)
    except InputError as error:
        if any(":" in name for name in selection.names):
            text = f"{error} The engine also has no image of `imgbuild extend` with this name."
            raise InputError(text) from None
        raise
    everything = selection.everything
    return options.for_platform(images, platform, checkout.settings, everything=everything)


def builder_images(checkout: Project) -> "tuple[Image, ...]":
    """Return one image of the matrix; any image provides the matrix and the settings."""
    from imgbuild.matrix.images import all_images
    from imgbuild.matrix.load import load_matrix

    matrix = load_matrix(checkout.matrix)
    return all_images(matrix)[:1]


def planned_lines(result: "PushResult") -> list[str]:
    """Return a line per image with its remaining steps, followed by the tags to create."""
    rows: list[tuple[str, ...]] = []
    notes: list[tuple[str, ...]] = []
    for image in result.images:
        steps = _brief(image.steps, "move")
        rows.append((image.record.image, steps))
        tags = " ".join((image.record.tag, *_index_tags(image), *image.moves))
        notes.append((tags, *image.kept))
    lines = table_with_notes(rows, notes)
    return [f"to {result.repository}:", *lines]


def pushed_lines(result: "PushResult") -> list[str]:
    """Return the table of completed steps with the tags, and a command to pull the first image."""
    rows: list[tuple[str, ...]] = [("image", "digest", "MB", "done")]
    notes: list[tuple[str, ...]] = [()]
    for image in result.images:
        record = image.record
        kept = {text.partition(" ")[0] for text in image.kept}
        size = f"{record.size / 1e6:.0f}"
        steps = _brief(image.done, "moved")
        rows.append((record.image, record.short_digest, size, steps))
        moved = [tag for tag in record.moving if tag not in kept]
        tags = " ".join((record.tag, *_index_tags(image), *moved))
        notes.append((tags, *image.kept))
    lines = table_with_notes(rows, notes)
    done = sum(bool(image.steps) for image in result.images)
    counts = f"{done} published, {len(result.images) - done} up to date"
    if result.errors:
        counts += f", {len(result.errors)} failed"
    first = result.images[0].record
    tag = first.moving[0] if first.moving else first.tag
    lines += [f"{counts}.", f"docker pull {result.repository}:{tag}"]
    return lines


def _index_tags(image: "PushedImage") -> tuple[str, ...]:
    return (image.index.tag,) if image.index else ()


def result_json(result: "PushResult", *, plan: bool) -> dict[str, Any]:
    """Return the remaining steps for a plan, else the completed steps and the errors."""
    images = []
    for image in result.images:
        record = image.record
        facts: dict[str, Any] = {"image": record.image, "tag": record.tag}
        if plan:
            facts["to_do"] = list(image.steps)
        else:
            facts["moving"] = list(record.moving)
            facts["digest"] = record.digest
            facts["size"] = record.size
            facts["done"] = list(image.done)
        facts["left"] = list(image.kept)
        if image.index:
            facts["index"] = image.index.tag
        images.append(facts)
    if plan:
        return {"repository": result.repository, "images": images}
    failed = {name: str(error) for name, error in result.errors.items()}
    return {"repository": result.repository, "published": images, "failed": failed}


def _brief(steps: Sequence[str], move: str) -> str:
    """Return the steps, with the number of moved tags instead of their names."""
    words = [step for step in steps if " " not in step]
    moves = len(steps) - len(words)
    if moves:
        tags = count_text(moves, "tag")
        words.append(f"{move} {tags}")
    return ", ".join(words) or "up to date"
