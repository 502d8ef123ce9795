"""The values of GitHub's expressions: what counts as true, as equal, as text."""

from __future__ import annotations

import json
from typing import Any


class ExpressionError(Exception):
    """An expression that cannot be evaluated here, and why."""


def truth(value: Any) -> bool:
    """Return whether a value counts as true: all but false, 0, the empty text and null."""
    return value not in (False, 0, "", None)


def as_text(value: Any) -> str:
    """Return a value as GitHub inserts it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def equal(left: Any, right: Any) -> bool:
    """Compare as GitHub does: texts without regard to case, unlike types as numbers."""
    if isinstance(left, str) and isinstance(right, str):
        return left.lower() == right.lower()
    if type(left) is type(right):
        return bool(left == right)
    return _number(left) == _number(right)


def _number(value: Any) -> float:
    """Return what a value is as a number; what is none equals nothing, not even itself."""
    if value is None or value == "":
        return 0.0
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def part(value: Any, key: Any, name: str) -> Any:
    """Return an entry; of a list without it null, as on GitHub, of a mapping an error."""
    if isinstance(value, list) and isinstance(key, int):
        return value[key] if key < len(value) else None
    if isinstance(value, dict) and key in value:
        return value[key]
    raise ExpressionError(f"{name} has no {key!r} here")
