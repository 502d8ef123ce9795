"""Broken rules as faults of ``matrix.yaml``, each with the place of the pin that is to blame."""

from collections.abc import Iterator

from imgbuild.matrix.image import Image, resolve_image
from imgbuild.matrix.model import Matrix, Row
from imgbuild.rules.facts import TABLES, pins_of
from imgbuild.rules.judge import Broken, broken_rules
from imgbuild.rules.nearest import nearest_that_works
from imgbuild.yaml_document import Fault, Location

#: More images than this are counted, not named.
NAMED_IMAGES = 3


def rule_faults(matrix: Matrix) -> list[Fault]:
    """Return one fault for each rule that a row breaks, in one of its variants or in both.

    Rows with references to nothing are passed over: :mod:`imgbuild.matrix.references` names them.
    """
    images: dict[Fault, list[str]] = {}
    for index, row in enumerate(matrix.images):
        for image in _images(matrix, row):
            for fault in _faults_of(image, row, index):
                images.setdefault(fault, []).append(image.name)
    return [Fault(f.location, f"{_list(names)}: {f.message}") for f, names in images.items()]


def _images(matrix: Matrix, row: Row) -> Iterator[Image]:
    for variant in row.variants:
        try:
            yield resolve_image(matrix, row, variant)
        except KeyError:
            continue


def _faults_of(image: Image, row: Row, index: int) -> Iterator[Fault]:
    matrix, pins = image.matrix, pins_of(image)
    for broken in broken_rules(matrix, pins):
        at = _location(matrix, row, index, broken)
        nearest = nearest_that_works(matrix, pins, broken)
        yield Fault(at, f"{broken.sentence} Nearest that works: {nearest or 'none'}.")


def _location(matrix: Matrix, row: Row, index: int, broken: Broken) -> Location:
    component = broken.rule.judges
    if broken.is_of_a_table:
        field = str(broken.rule.value).split(".")[1:]
        return (TABLES[component], broken.pin, *field)
    return _pin_location(matrix, row, index, component)


def _pin_location(matrix: Matrix, row: Row, index: int, component: str) -> Location:
    """Return where the pin was written that holds for the row; as ``pins.pin_of`` looks it up."""
    stack = matrix.stacks[row.stack]
    if getattr(row, component, None) is not None:
        return ("images", index, component)
    if component == "os":
        return ("stacks", row.stack, "os")
    if getattr(stack.pins, component, None) is not None:
        return ("stacks", row.stack, "pins", component)
    return ("operating_systems", row.os or stack.os, "pins", component)


def _list(names: list[str]) -> str:
    named = ", ".join(names[:NAMED_IMAGES])
    return f"{named} and {len(names) - NAMED_IMAGES} more" if len(names) > NAMED_IMAGES else named
