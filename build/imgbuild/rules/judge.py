"""The arrow pins → broken rules. Pure: what the matrix says, nothing else."""

from dataclasses import dataclass

from imgbuild.matrix.model import Matrix
from imgbuild.matrix.rule import Rule
from imgbuild.rules.checks import COMPARISONS, admits, spelled
from imgbuild.rules.facts import Pins, Value, look_up


@dataclass(frozen=True)
class Broken:
    """One rule that the pins of an image break: what was found, and what the rule wants."""

    rule: Rule
    pin: str
    value: str
    wanted: str

    @property
    def found(self) -> str:
        """Return the judged pin, and what was compared where that is something else."""
        pinned = f"{self.rule.judges} {self.pin}"
        return f"{pinned}, {self.rule.value} {self.value}," if self.rule.value else pinned

    @property
    def is_of_a_table(self) -> bool:
        """Whether a table of the matrix is wrong, not the pin: the rule itself has the minimum."""
        return self.rule.minimum is not None

    @property
    def sentence(self) -> str:
        """Return what is wrong and why it is wrong, with the rule's name and source."""
        return (
            f"{self.found} breaks the rule {self.rule.name}, which wants {self.wanted}: "
            f"{self.rule.says} Source: {self.rule.source}."
        )


def broken_rules(matrix: Matrix, pins: Pins) -> list[Broken]:
    """Return the rules that the pins break, in the order of the matrix."""
    found = (_judge(matrix, rule, pins) for rule in matrix.rules)
    return [broken for broken in found if broken is not None]


def _judge(matrix: Matrix, rule: Rule, pins: Pins) -> Broken | None:
    """Return how the pins break the rule; None if they do not, or if it is not about them."""
    value = look_up(matrix, pins, rule.value or rule.judges)
    fact = _wanted(matrix, rule, pins)
    if value is None or fact is None or not _applies(matrix, rule, pins):
        return None
    comparison = COMPARISONS[rule.check]
    if comparison.holds(spelled(value), fact):
        return None
    return Broken(rule, pins[rule.judges], spelled(value), comparison.wants(fact))


def _wanted(matrix: Matrix, rule: Rule, pins: Pins) -> Value | None:
    if rule.minimum is not None:
        return rule.minimum.get(pins.get(rule.judges, ""))
    return look_up(matrix, pins, rule.fact) if rule.fact else None


def _applies(matrix: Matrix, rule: Rule, pins: Pins) -> bool:
    facts = ((look_up(matrix, pins, fact), wanted) for fact, wanted in rule.where.items())
    return all(isinstance(fact, str) and admits(wanted, fact) for fact, wanted in facts)
