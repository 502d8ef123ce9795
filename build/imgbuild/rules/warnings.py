"""What to say before an image is built as documented: what differs, and what will happen."""

from imgbuild.matrix.documented import corrections, never_published
from imgbuild.matrix.image import Image
from imgbuild.rules.facts import pins_of
from imgbuild.rules.judge import Broken, broken_rules


def documented_warnings(image: Image) -> list[str]:
    """Return paragraphs on an image as documented: one on its pins, then one a broken rule."""
    broken = broken_rules(image.matrix, pins_of(image))
    return [_differences(image), *(_warning(image, one) for one in broken)]


def _differences(image: Image) -> str:
    changed = [
        f"{c.documented.component} {c.documented.version} in place of {c.corrected.version}"
        for c in corrections(image)
    ]
    kept = [
        f"{pin.component} stays {pin.version}, since {pin.documented} cannot be had ({pin.why})"
        for pin in never_published(image)
    ]
    return f"{image.name} is built as documented: {'; '.join([*changed, *kept])}."


def _warning(image: Image, broken: Broken) -> str:
    return (
        f"Warning: {image.name}: {broken.sentence} What will happen: {broken.rule.otherwise}. "
        "Suites that look for this fail, and then the image gets no name; --no-test names it."
    )
