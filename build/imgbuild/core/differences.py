"""Compare two mappings."""

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value")


def changed_values(
    first: Mapping[str, Value], second: Mapping[str, Value]
) -> dict[str, tuple[Value | None, Value | None]]:
    """Return both values of each name whose values differ; a missing value is None."""
    changed = {}
    for name in dict.fromkeys((*first, *second)):
        pair = (first.get(name), second.get(name))
        if pair[0] != pair[1]:
            changed[name] = pair
    return changed
