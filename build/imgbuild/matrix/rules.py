"""Check the pins of images against the compatibility rules of ``matrix.yaml``."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from imgbuild.core.yaml_file import Fault, Location
from imgbuild.matrix.evidence import MACHINES, Architecture
from imgbuild.matrix.images import Image, all_images, minor_of
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.pins import distribution_key, locate_pin
from imgbuild.matrix.rule_model import Check, Rule

#: The table whose keys the pins of a component name.
TABLES = {
    **{name: name for name in ("tensorflow", "python", "mpi", "horovod", "cuda")},
    "os": "operating_systems",
}
#: Limit for the image names in a fault; the rest is counted.
NAMED_IMAGES = 3
_VERSION = re.compile(r"[0-9][0-9.]*$")

#: Versions by component, spelt as in the matrix's tables.
Pins = Mapping[str, str]
#: A value that a rule compares: one or several texts, because a field may be a list.
Value = tuple[str, ...]


@dataclass(frozen=True)
class BrokenRule:
    """A rule that the pins of an image break, with the actual and the required value."""

    rule: Rule
    pin: str
    value: str
    required: str

    @property
    def blames_table(self) -> bool:
        """Whether a table is wrong, not the pin: true for rules with their own ``minimum``."""
        return self.rule.minimum is not None

    @property
    def sentence(self) -> str:
        """The problem and its reason, with the name and the source of the rule."""
        subject = f"{self.rule.judges} {self.pin}"
        if self.rule.value:
            subject += f", {self.rule.value} {self.value},"
        return (
            f"{subject} breaks the rule {self.rule.name}, which requires {self.required}: "
            f"{self.rule.says} Source: {self.rule.source}."
        )


def find_broken_rules(
    matrix: Matrix, pins: Pins, architecture: Architecture = "amd64"
) -> list[BrokenRule]:
    judged = (_judge(matrix, rule, pins, architecture) for rule in matrix.rules)
    return [broken for broken in judged if broken is not None]


def find_rule_faults(matrix: Matrix) -> Iterator[Fault]:
    """Yield one fault for each broken rule and place in the file, with the names of the images."""
    images: dict[Fault, list[str]] = {}
    for image in (*all_images(matrix), *all_images(matrix, "arm64")):
        for broken in find_broken_rules(matrix, image.keys, image.architecture):
            nearest = find_working_value(matrix, image.keys, broken, image.architecture)
            message = (
                f"{broken.sentence} Consequence: {broken.rule.otherwise}. "
                f"Nearest that works: {nearest or 'none'}."
            )
            images.setdefault(Fault(_location(image, broken), message), []).append(image.name)
    for fault, names in images.items():
        more = len(names) - NAMED_IMAGES
        listed = ", ".join(names[:NAMED_IMAGES]) + (f" and {more} more" if more > 0 else "")
        yield Fault(fault.location, f"{listed}: {fault.message}")


def find_working_value(
    matrix: Matrix, pins: Pins, broken: BrokenRule, architecture: Architecture = "amd64"
) -> str | None:
    """Return the nearest value that breaks no rule for the judged pin; None if there is none.

    If an older and a newer value are equally near, return the newer one. Prefer values with the
    same name: for ``debian-12``, ``ubuntu-18.04`` comes after all releases of Debian. If the rule
    has a ``minimum``, return that of the judged pin.
    """
    component = broken.rule.judges
    if broken.rule.minimum is not None:
        return broken.rule.minimum.get(broken.pin)
    known: dict[str, object] = {}
    if component in TABLES:
        known |= getattr(matrix, TABLES[component])
    else:  # each CUDA release lists its releases of cuDNN and NCCL
        for cuda in matrix.cuda.values():
            known |= dict.fromkeys(getattr(cuda, component))

    def works(value: str) -> bool:
        for other in find_broken_rules(matrix, {**pins, component: value}, architecture):
            if other.rule.judges == component and not other.blames_table:
                return False
        return True

    def distance(value: str) -> tuple[bool, int, int]:
        name, place = _name_and_place(value)
        pinned_name, pinned_place = _name_and_place(broken.pin)
        return name != pinned_name, abs(place - pinned_place), -place

    return min(filter(works, known), key=distance, default=None)


def _name_and_place(value: str) -> tuple[str, int]:
    """Return the name without its version, and a number that is larger for newer versions."""
    name = _VERSION.sub("", value)
    place = 0
    for index, number in enumerate(parse_numbers(value.removeprefix(name))[:6]):
        place += number * 10_000 ** (5 - index)
    return name, place


def parse_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version for comparison, without trailing zeros."""
    parts = [int(number) for number in re.findall(r"[0-9]+", version)]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


@cache
def admits(specifier: str, version: str) -> bool:
    """Return whether a version is in a range, for example ``>=1.1,<2``."""
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidVersion:  # not a PEP 440 version, so it is in no range
        return False


def _judge(matrix: Matrix, rule: Rule, pins: Pins, architecture: Architecture) -> BrokenRule | None:
    """Return how the pins break the rule; None if they meet it or it does not apply."""
    if rule.judges not in pins:  # for example CUDA in a CPU image
        return None
    for name, specifier in rule.where.items():
        known = _look_up(matrix, pins, name, architecture)
        if not known or not admits(specifier, known[0]):
            return None
    value = _look_up(matrix, pins, rule.value or rule.judges, architecture)
    fact = _look_up(matrix, pins, rule.fact, architecture) if rule.fact else None
    if rule.minimum is not None:
        minimum = rule.minimum.get(pins[rule.judges])
        fact = (minimum,) if minimum else None
    if value is None or fact is None:
        return None
    holds, requirement = COMPARISONS[rule.check]
    compared = ", ".join(value)
    if holds(compared, fact):
        return None
    listed = ", ".join(fact) or "none"
    required = requirement.format(listed, minor_of(listed))
    return BrokenRule(rule, pins[rule.judges], compared, required)


def _look_up(matrix: Matrix, pins: Pins, fact: str, architecture: Architecture) -> Value | None:
    """Return a pin (``cuda``), a field of its entry (``cuda.os``) or a fact of the wheel.

    None: the image has no such pin, the entry has no such value, or the wheel was not read.
    """
    component, _, name = fact.partition(".")
    value: object = pins.get(component)
    if component == "wheel":
        value = _wheel_fact(matrix, pins, name, architecture)
    elif value and name:
        entry = getattr(matrix, TABLES[component])[value]
        value = getattr(entry, name, None)
    if isinstance(value, str):
        return (value,)
    return value if isinstance(value, tuple) else None


def _wheel_fact(matrix: Matrix, pins: Pins, name: str, architecture: Architecture) -> object:
    """Return a fact of the image's TensorFlow wheel; None if the wheel was not read."""
    version = pins["tensorflow"]
    key = distribution_key("gpu" if "cuda" in pins else "cpu", architecture)
    distribution, machine = matrix.tensorflow[version].distribution[key], MACHINES[architecture]
    if name == "pythons":  # known even if the release has no wheel for this Python
        return matrix.evidence.pythons(distribution, version, machine) or None
    tag = matrix.python[pins["python"]].wheel_tag
    wheel = matrix.evidence.wheel(distribution, version, tag, machine)
    return getattr(wheel, name, None) or None


def _location(image: Image, broken: BrokenRule) -> Location:
    component = broken.rule.judges
    if broken.blames_table and component in TABLES:
        field = str(broken.rule.value).split(".")[1:]
        return (TABLES[component], broken.pin, *field)
    return locate_pin(image.matrix, image.row, component)


def _same_major_newer_minor(version: str, other: str) -> bool:
    major, minor, *_ = (*parse_numbers(version), 0, 0)
    least_major, least_minor, *_ = (*parse_numbers(other), 0, 0)
    return major == least_major and minor >= least_minor


#: For each ``check`` of a rule: whether a value meets a fact, and the text that describes required
#: values. ``{0}`` is the fact, ``{1}`` its first two numbers.
COMPARISONS: Mapping[Check, tuple[Callable[[str, Value], bool], str]] = {
    "equal": (lambda value, fact: (value,) == fact, "{0}"),
    "one-of": (lambda value, fact: value in fact, "one of: {0}"),
    "range": (lambda value, fact: admits(fact[0], value), "a version in {0}"),
    "at-least": (
        lambda value, fact: parse_numbers(value) >= parse_numbers(fact[0]),
        "at least {0}",
    ),
    "same-major-minor-at-least": (
        lambda value, fact: _same_major_newer_minor(value, fact[0]),
        "{1} or newer of the same major number",
    ),
    "release-one-of": (lambda value, fact: minor_of(value) in fact, "a release of: {0}"),
}
