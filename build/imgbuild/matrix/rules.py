"""Judge the pins of images by the compatibility rules of ``matrix.yaml``."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from imgbuild.matrix.images import (
    Image,
    corrections,
    minor_of,
    never_published,
    resolvable_images,
)
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.pins import pin_location
from imgbuild.matrix.rule_model import Check, Rule
from imgbuild.yaml_file import Fault, Location

#: The table of the matrix that a component's pin names a key of.
TABLES = {
    **{name: name for name in ("tensorflow", "python", "mpi", "horovod", "cuda")},
    "os": "operating_systems",
}
#: A fault lists so many image names, then counts the rest.
NAMED_IMAGES = 3
_NAMED_VERSION = re.compile(r"(?P<name>.*?)-?(?P<version>[0-9][0-9.]*)")

#: Versions by component, each as the matrix's tables spell it.
Pins = Mapping[str, str]
#: A pin or a field of a table: what a rule compares.
Value = str | tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Whether a value fits a fact, and how to say which values would."""

    holds: Callable[[str, Value], bool]
    #: Says which values would fit; ``{0}`` is the fact, ``{1}`` its first two numbers.
    requires: str


@dataclass(frozen=True)
class BrokenRule:
    """One rule that the pins of an image break: what was found, and what the rule requires."""

    rule: Rule
    pin: str
    value: str
    required: str

    @property
    def is_of_a_table(self) -> bool:
        """Whether a table of the matrix is wrong, not the pin: the rule itself has the minimum."""
        return self.rule.minimum is not None

    @property
    def sentence(self) -> str:
        """What is wrong and why, with the rule's name and source."""
        found = f"{self.rule.judges} {self.pin}"
        if self.rule.value:
            found = f"{found}, {self.rule.value} {self.value},"
        return (
            f"{found} breaks the rule {self.rule.name}, which requires {self.required}: "
            f"{self.rule.says} Source: {self.rule.source}."
        )


def broken_rules(matrix: Matrix, pins: Pins) -> list[BrokenRule]:
    """Return the rules that the pins break, in the order of the matrix."""
    found = (_judge(matrix, rule, pins) for rule in matrix.rules)
    return [broken for broken in found if broken is not None]


def rule_faults(matrix: Matrix) -> list[Fault]:
    """Return one fault for each rule that a row breaks, in one of its variants or in both."""
    images: dict[Fault, list[str]] = {}
    for image in resolvable_images(matrix):
        for fault in _faults_of(image):
            images.setdefault(fault, []).append(image.name)
    faults = []
    for fault, names in images.items():
        more = len(names) - NAMED_IMAGES
        listed = ", ".join(names[:NAMED_IMAGES]) + (f" and {more} more" if more > 0 else "")
        faults.append(Fault(fault.location, f"{listed}: {fault.message}"))
    return faults


def documented_warnings(image: Image) -> list[str]:
    """Return paragraphs on an image as documented: one on its pins, then one a broken rule."""
    changed = [
        f"{component} {image.version_of(component)} in place of {corrected.version}"
        for component, corrected in corrections(image).items()
    ]
    kept = [
        f"{pin.component} stays {pin.version}, since {pin.documented} is not available ({pin.why})"
        for pin in never_published(image)
    ]
    return [
        f"{image.name} is built as documented: {'; '.join([*changed, *kept])}.",
        *(
            f"Warning: {image.name}: {broken.sentence} What will happen: {broken.rule.otherwise}. "
            "Suites that check this fail, and the image is not tagged; --no-test tags it."
            for broken in broken_rules(image.matrix, image.keys)
        ),
    ]


def look_up(matrix: Matrix, pins: Pins, fact: str) -> Value | None:
    """Return a pin (``cuda``) or a field of its entry (``cuda.os``); None if there is none."""
    component, *path = fact.split(".")
    if component not in pins:
        return None
    if not path:
        return pins[component]
    found: object = getattr(matrix, TABLES[component])[pins[component]]
    for part in path:
        found = getattr(found, part, None)
    return found if isinstance(found, str | tuple) else None


def nearest_that_works(matrix: Matrix, pins: Pins, broken: BrokenRule) -> str | None:
    """Return the value of the judged pin that breaks none of the pin's rules; None if none.

    It is the next older or the next newer one, whichever is nearer, the newer of two equally near.
    Values of another name (``ubuntu-18.04`` for ``debian-12``) come after all of the same name.
    """
    component = broken.rule.judges
    if broken.is_of_a_table:
        return (broken.rule.minimum or {}).get(broken.pin)
    working = [
        value
        for value in _known_values(matrix, component)
        if not _breaks(matrix, {**pins, component: value}, component)
    ]
    return _nearest(broken.pin, working)


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, without zeros at the end: 2.10 is newer than 2.9."""
    found = [int(number) for number in re.findall(r"[0-9]+", version)]
    while found and not found[-1]:
        found.pop()
    return tuple(found)


@cache
def admits(specifier: str, version: str) -> bool:
    """Return whether a version is in a range such as ``>=1.1,<2``."""
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidVersion:  # a version of another kind is in no range
        return False


def _judge(matrix: Matrix, rule: Rule, pins: Pins) -> BrokenRule | None:
    """Return how the pins break the rule; None if they do not, or if it is not about them."""
    value = look_up(matrix, pins, rule.value or rule.judges)
    if rule.minimum is not None:
        fact: Value | None = rule.minimum.get(pins.get(rule.judges, ""))
    else:
        fact = look_up(matrix, pins, rule.fact) if rule.fact else None
    if value is None or fact is None or not _applies(matrix, rule, pins):
        return None
    comparison = COMPARISONS[rule.check]
    if comparison.holds(_spelled(value), fact):
        return None
    spelled = _spelled(fact)
    required = comparison.requires.format(spelled, minor_of(spelled))
    return BrokenRule(rule, pins[rule.judges], _spelled(value), required)


def _applies(matrix: Matrix, rule: Rule, pins: Pins) -> bool:
    facts = ((look_up(matrix, pins, fact), range_) for fact, range_ in rule.where.items())
    return all(isinstance(fact, str) and admits(range_, fact) for fact, range_ in facts)


def _faults_of(image: Image) -> Iterator[Fault]:
    matrix, pins = image.matrix, image.keys
    for broken in broken_rules(matrix, pins):
        nearest = nearest_that_works(matrix, pins, broken)
        message = f"{broken.sentence} Nearest that works: {nearest or 'none'}."
        yield Fault(_location(image, broken), message)


def _location(image: Image, broken: BrokenRule) -> Location:
    component = broken.rule.judges
    if broken.is_of_a_table:
        field = str(broken.rule.value).split(".")[1:]
        return (TABLES[component], broken.pin, *field)
    return pin_location(image.matrix, image.row, component)


def _known_values(matrix: Matrix, component: str) -> tuple[str, ...]:
    """Return every value of a pin that the matrix's tables have, in their order."""
    if component in TABLES:
        return tuple(getattr(matrix, TABLES[component]))
    # cuDNN and NCCL have no table: each CUDA release lists the releases that go with it.
    found = (value for cuda in matrix.cuda.values() for value in getattr(cuda, component))
    return tuple(dict.fromkeys(found))


def _breaks(matrix: Matrix, pins: Pins, component: str) -> bool:
    found = broken_rules(matrix, pins)
    return any(b.rule.judges == component and not b.is_of_a_table for b in found)


def _nearest(wrong: str, values: list[str]) -> str | None:
    name, version = _name_and_version(wrong)
    same_name = [value for value in values if _name_and_version(value)[0] == name]
    ordered = sorted(same_name or values, key=lambda value: _name_and_version(value)[1])
    newer = [value for value in ordered if _name_and_version(value)[1] >= version]
    older = ordered[: len(ordered) - len(newer)]

    def distance(value: str) -> list[int]:
        pairs = zip_longest(version, _name_and_version(value)[1], fillvalue=0)
        return [abs(one - other) for one, other in pairs]

    return min([*newer[:1], *older[-1:]], key=distance, default=None)


def _name_and_version(value: str) -> tuple[str, tuple[int, ...]]:
    match = _NAMED_VERSION.fullmatch(value)
    return (match["name"], numbers(match["version"])) if match else (value, ())


def _spelled(value: Value) -> str:
    return value if isinstance(value, str) else ", ".join(value) or "none"


def _all(value: Value) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _same_major_newer_minor(version: str, other: str) -> bool:
    mine, least = (*numbers(version), 0, 0), (*numbers(other), 0, 0)
    return mine[0] == least[0] and mine[1] >= least[1]


#: The comparisons that a rule's ``check`` names.
COMPARISONS: Mapping[Check, Comparison] = {
    "equal": Comparison(lambda value, fact: value == fact, "{0}"),
    "one-of": Comparison(lambda value, fact: value in _all(fact), "one of: {0}"),
    "range": Comparison(lambda value, fact: admits(_spelled(fact), value), "a version in {0}"),
    "at-least": Comparison(
        lambda value, fact: numbers(value) >= numbers(_spelled(fact)), "at least {0}"
    ),
    "same-major-minor-at-least": Comparison(
        lambda value, fact: _same_major_newer_minor(value, _spelled(fact)),
        "{1} or newer of the same major number",
    ),
    "release-one-of": Comparison(
        lambda value, fact: minor_of(value) in _all(fact), "a release of: {0}"
    ),
}
